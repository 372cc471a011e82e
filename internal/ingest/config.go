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

type Store interface {
	// Append owns samples, in which those of each vehicle are in order of time. It returns nil
	// only when all are on disk. After an error, some may be.
	Append(ctx context.Context, samples []vehicle.Sample) error
}

// Unfolded counts each source's samples that are not folded yet.
type Unfolded interface {
	// Reserve adds n samples, or returns false and the estimated time until there is room. After
	// Append, Release subtracts n, because the engine counts stored samples itself.
	Reserve(source uint32, n int) (wait time.Duration, ok bool)
	Release(source uint32, n int)
}

const MaxBody = 8 << 20 // bytes, decompressed

// Config configures [NewHTTP] and [NewMQTT]. The fields after Registry may be zero.
type Config struct {
	Store    Store
	Sources  *access.Sources
	Unfolded Unfolded

	// These functions are called for every message and must not block.
	Forgotten func(vehicle.ID) bool
	Admit     func(vehicle.ID) bool // whether a vehicle is known, or may be added
	Verdicts  func(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	Ready     func() error // why the node cannot accept telemetry now
	ReadOnly  func() bool  // an operator has switched telemetry off; Ready must then return an error

	Log      *slog.Logger
	Registry prometheus.Registerer

	NoDocs             bool
	Limit              *listen.Limit    // sheds HTTP load
	TLS                *tls.Config      // for HTTP (nil: plain) and [MQTT.ServeTLS]
	MaxHTTPConnections int              // 0: 4,096; DESIGN.md says what happens at the limits
	MaxConnections     int              // of MQTT; 0: 20,000
	MaxBytes           int              // of unanswered telemetry, for HTTP and MQTT each; 0: 256 MiB
	Now                func() time.Time // if nil, time.Now

	grace time.Duration // until the minimum rate of a body or packet applies; 0: 5 s
}

// storeTimeout limits a call of [Store.Append]; MQTT allows up to a second more.
const storeTimeout = 15 * time.Second
