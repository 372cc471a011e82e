// Package sender sends telemetry to a service's public listeners, by HTTP or MQTT.
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

type Sender interface {
	// Send returns nil once all samples are acknowledged, a [Refusal] if some were refused for
	// good. After another error, it is unknown which were stored. Samples of one vehicle are in
	// order.
	Send(ctx context.Context, samples []vehicle.Sample) error
	Door() string
	Close()
}

// Refusal: the other samples of the batch were stored.
type Refusal struct {
	Samples int
	Reason  string // of the first of them
}

func (r Refusal) Error() string {
	return fmt.Sprintf("%d samples were refused; the first: %s", r.Samples, r.Reason)
}

type Login struct {
	Name, Key string
	Made      time.Time // when the source was made; zero: long ago
}

const (
	spreadTime = 10 * time.Second // until all nodes of a cluster know a new source
	askAgain   = time.Second
)

type sourceUnknown struct{ error }

// spreads reports whether the node may still learn of the source.
func (l Login) spreads(err error) bool {
	_, unknown := errors.AsType[sourceUnknown](err)
	return unknown && time.Since(l.Made) < spreadTime
}

// unreachable names the listener (what), and the flags of its address.
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
