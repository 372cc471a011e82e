package ingest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/vehicle"
)

// Store stores samples durably.
type Store interface {
	// Append returns nil only when all samples are on disk. After an error, any part of the
	// samples may be stored, and none may be acknowledged. Each vehicle's samples must be
	// ordered by time. The slice belongs to the store after the call.
	Append(ctx context.Context, samples []vehicle.Sample) error
}

// Unfolded counts the samples of each source, given by its number, that are not folded yet.
type Unfolded interface {
	// Reserve counts n samples that are about to be stored if the source has room for them. If not,
	// wait is the estimated time until it has. Release returns the reservation once Append has
	// returned.
	Reserve(source uint32, n int) (wait time.Duration, ok bool)
	Release(source uint32, n int)
}

// Limits of telemetry. A request or message that exceeds MaxBody, MaxSamples or MaxSample is
// refused as a whole.
const (
	MaxBody    = 8 << 20         // bytes of a request body, after decompression
	MaxSamples = access.MaxBatch // samples of a request or MQTT message
	MaxSample  = 64 << 10        // bytes of one sample
	// MaxAhead is how far the time of a sample may be ahead of this node's clock. A sample that is
	// further ahead is refused; the other samples of its request or message are accepted.
	MaxAhead = 30 * time.Second
	// MaxBehind is how far the time of a sample may be behind this node's clock. A sample that is
	// older comes from a clock that is wrong.
	MaxBehind = 366 * 24 * time.Hour
)

// Config configures [NewHTTP] and [NewMQTT]. Both may use the same Config. The fields up to Registry
// are required. Every other field may have its zero value.
type Config struct {
	Store   Store
	Sources *access.Sources // the sources and their keys

	// The functions are called all the time and must not block.

	// Forgotten reports whether the data of a vehicle were deleted, and its samples are refused.
	Forgotten func(vehicle.ID) bool

	// Admit reports whether a vehicle is known, or the limit on their number allows one more.
	Admit func(vehicle.ID) bool

	// Verdicts returns the newest known verdicts of a vehicle, which are zero if nothing is known.
	Verdicts func(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)

	// Unfolded bounds the samples of each source that are not folded yet. If nil, nothing is bounded.
	Unfolded Unfolded

	// Ready returns nil if the node can accept telemetry now, and otherwise the reason.
	Ready func() error

	// ReadOnly reports whether an operator has switched telemetry off for maintenance. In that case
	// Ready must return an error.
	ReadOnly func() bool

	Log      *slog.Logger
	Registry prometheus.Registerer

	NoDocs bool // HTTP serves only telemetry

	Limit *listen.Limit // sheds load of HTTP, if not nil

	// TLS is the TLS configuration of [HTTP] and [MQTT.ServeTLS]. If nil, [HTTP] serves plain HTTP,
	// and [MQTT.ServeTLS] cannot be used.
	TLS *tls.Config

	// MaxHTTPConnections is the maximum number of open HTTP connections; 0 means 4,096. DESIGN.md
	// says what happens at this maximum and the next.
	MaxHTTPConnections int
	// MaxConnections is the maximum number of open MQTT connections. At the maximum, a connection
	// that has not logged in is closed to admit a new one. 0 means 20,000.
	MaxConnections int

	// MaxBytes limits the memory, in bytes, of unanswered telemetry, for HTTP and MQTT separately.
	// An HTTP request in progress counts as at least 64 KiB. 0 means 256 MiB.
	MaxBytes int

	// grace is the time after which the minimum rate of 1 KB/s applies to the body of a request, or
	// to an MQTT packet, that is still arriving. 0 means 5 s.
	grace time.Duration

	Now func() time.Time // if nil, time.Now is used
}

// storeTimeout is how long one call of [Store.Append] may take; for MQTT it is up to a second more.
const storeTimeout = 15 * time.Second
