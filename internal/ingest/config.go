package ingest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// Store keeps samples.
type Store interface {
	// Append returns nil only when all samples are on disk. After any error
	// nothing may be acknowledged: the samples may or may not be there. Each
	// vehicle's samples are ordered by time. All belong to the store
	// afterwards.
	Append(ctx context.Context, samples []vehicle.Sample) error
}

// Limits of what comes in. Over them a request is refused whole.
const (
	MaxBody    = 8 << 20         // bytes of a request body, after decompression
	MaxSamples = access.MaxBatch // samples of a request or MQTT message
	MaxSample  = 64 << 10        // bytes of one sample
	// MaxAhead is how far a sample's time may be ahead of our clock.
	MaxAhead = 30 * time.Second
)

// Config is what [NewHTTP] and [NewMQTT] need. Both may get the same one.
type Config struct {
	Store   Store           // required
	Sources *access.Sources // required: who may write

	// Forgotten reports whether nothing may be taken in of a vehicle. Without
	// it none is. It is asked for every sample and must answer at once.
	Forgotten func(vehicle.ID) bool

	// Admit reports whether a vehicle is known or may become so: there is a bound of
	// vehicles. Without it all are. It is asked for each vehicle of a batch and must
	// answer at once.
	Admit func(vehicle.ID) bool

	// Ready says why telemetry cannot be taken now, or nil. Without it the
	// service is always ready. It is asked for every request and
	// connection and must answer at once.
	Ready func() error

	// ReadOnly reports that an operator has switched telemetry off for maintenance; Ready then has an
	// error. It is asked for every MQTT message. Without it telemetry is never off.
	ReadOnly func() bool

	// Overloaded reports that more arrives than is done. Where it still does at
	// the first request of an HTTP connection that came then, the request gets
	// 503 and the connection is closed; those that were open go on. Without it
	// the service never is. It is asked for every connection and must answer at
	// once.
	Overloaded func() bool

	// Excess reports that an HTTP connection, as its guard handed it out, is one
	// too many for what can be done: its next answer ends it. Without it none is.
	// It is asked for every request and must take no lock.
	Excess func(net.Conn) bool

	// TLS makes [HTTP.Serve] speak TLS, and is what [MQTT.ServeTLS] uses.
	TLS *tls.Config

	// MaxHTTPConnections is how many HTTP connections may be open. For a newer
	// one, one that has no request in work is closed (see netguard); each source has
	// its share of those that have one. While overloaded, the newer one is closed.
	// 0 means 4,096.
	MaxHTTPConnections int
	// MaxConnections is how many MQTT connections may be open. For a newer one,
	// one that has not logged in is closed; if all have, the newest is, and so is
	// one whose source has its share. 0 means 20,000.
	MaxConnections int

	// MaxBytes is how much memory the unanswered telemetry of HTTP may hold, and
	// that of MQTT as well; an HTTP request in work counts 64 KiB at least. When
	// it is used up, or a source's share of it, HTTP refuses the newest request
	// with 503, and MQTT does not read on. 0 means 256 MiB.
	MaxBytes int

	// grace is the time after which a body or packet must come at the least rate.
	// 0 means 5 s.
	grace time.Duration

	Now      func() time.Time      // nil means time.Now
	Log      *slog.Logger          // nil logs nothing
	Registry prometheus.Registerer // nil counts for nobody
	Tracer   trace.Tracer          // nil: nothing is traced
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.ReadOnly == nil {
		c.ReadOnly = func() bool { return false }
	}
	if c.Overloaded == nil {
		c.Overloaded = func() bool { return false }
	}
	if c.Excess == nil {
		c.Excess = func(net.Conn) bool { return false }
	}
	if c.MaxHTTPConnections == 0 {
		c.MaxHTTPConnections = 4096
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 20_000
	}
	if c.grace == 0 {
		c.grace = grace
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// storeTimeout ends the wait for a store that neither takes nor refuses.
const storeTimeout = 15 * time.Second
