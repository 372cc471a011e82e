// Package sender sends telemetry to a running service through its public listeners, by HTTP or
// MQTT, as a car or a gateway does. It sends recorded drives, whole fleets, and simulated cars. A
// batch counts as sent only when the service has acknowledged it.
package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"syscall"
	"time"

	"example.org/carstate/internal/vehicle"
)

// Sender sends samples over a connection to a listener of the service, as a car does.
type Sender interface {
	// Send returns nil once all samples are acknowledged. The samples of one vehicle are stored in
	// their order; samples of different vehicles may be stored in any order. If the service refused
	// some of the samples permanently, the error is a [Refusal]. After any other error, it is
	// unknown which of the samples were stored.
	Send(ctx context.Context, samples []vehicle.Sample) error
	// Door returns the name of the listener that receives the samples, as text for a user.
	Door() string
	Close()
}

// Refusal reports samples that the service refused permanently. The other samples of the same batch
// were stored.
type Refusal struct {
	Samples int
	Reason  string // why the first of them was refused
}

func (r Refusal) Error() string {
	return fmt.Sprintf("%d samples were refused; the first: %s", r.Samples, r.Reason)
}

// Login has the name and key of the source that sends the telemetry.
type Login struct {
	Name, Key string
	Made      time.Time // when the source was added; zero: long ago
}

const (
	// spreadTime is the maximum time until all nodes of a cluster know a new source. Usually it
	// takes some milliseconds.
	spreadTime = 10 * time.Second
	// askAgain is the pause before a retry at a node that does not know the source yet.
	askAgain = time.Second
)

// sourceUnknown is the error if a node refuses the name or the key of a source.
type sourceUnknown struct{ error }

// spreads reports whether a retry after err may succeed: err is a sourceUnknown, and the source is
// so new that the node may still learn of it.
func (l Login) spreads(err error) bool {
	_, unknown := errors.AsType[sourceUnknown](err)
	return unknown && time.Since(l.Made) < spreadTime
}

// unreachable returns the error for a listener that cannot be reached because of err. Its text
// names the listener (what), its address (host) and the flags that select it; for a certificate
// that is not trusted, it names the flag --ca instead.
func unreachable(what, host, flags string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no %s answers at %s: is `carstate serve` running? (%s)", what, host, flags)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the %s at %s shows a certificate that this system does not trust: name it with --ca FILE",
			what, host)
	}
	return fmt.Errorf("the %s at %s cannot be reached: %w: "+
		"check the address, and say https:// or mqtts:// if it uses TLS (%s)", what, host, err, flags)
}
