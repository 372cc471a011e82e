package store

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A zero field means the default.
type Config struct {
	DataDir string
	// Partitions is stored at the first start and cannot change. 0 means the stored number.
	Partitions     int
	Retention      time.Duration // Retention is how long folded telemetry is kept.
	TelemetryBytes int64

	Patience Patience

	Newer    *Newer
	Now      func() time.Time
	Log      *slog.Logger
	Registry prometheus.Registerer
}

type Patience struct {
	Store time.Duration // Store is how long a write is retried.
	// Markers is how long the marker of a forgotten vehicle stays in STATES at least, although it
	// names the vehicle, so that a disconnected node receives it. It is also the least time between
	// two erasures.
	Markers time.Duration
	Roads   time.Duration // Roads is the interval at which learned profiles are stored.
}

const (
	DefaultRetention      = time.Hour
	DefaultTelemetryBytes = 4 << 30

	defaultStore = 20 * time.Second
	// A road profile changes at most once in 15 minutes, so a crash loses at most 20 minutes of
	// evidence.
	defaultRoads = 5 * time.Minute

	MaxBatch       = 1000
	requestTimeout = 5 * time.Second
)

func (c Config) WithDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Registry = cmp.Or[prometheus.Registerer](c.Registry, prometheus.NewRegistry())
	c.Newer = cmp.Or(c.Newer, NewNewer(c.Log))
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.TelemetryBytes = cmp.Or(c.TelemetryBytes, DefaultTelemetryBytes)
	c.Patience = Patience{
		Store:   cmp.Or(c.Patience.Store, defaultStore),
		Markers: cmp.Or(c.Patience.Markers, 10*time.Minute),
		Roads:   cmp.Or(c.Patience.Roads, defaultRoads),
	}
	return c
}

func Anyone(string) bool { return true }

// ErrConfig marks an error with which every start fails until the configuration is changed.
var ErrConfig = errors.New("wrong configuration")

func ConfigError(err error) error { return OfKind(err, ErrConfig) }

// OfKind returns an error that is both err and kind, with the text of err alone.
func OfKind(err, kind error) error { return ofKind{err, kind} }

type ofKind struct {
	error
	kind error
}

func (e ofKind) Unwrap() []error { return []error{e.error, e.kind} }

// Names of gauges that other packages read. MetricBacklog has the label partition, the others stream.
const (
	MetricBacklog = "carstate_backlog_seconds"
	MetricFeedAge = "carstate_feed_age_seconds"
	MetricBytes   = "carstate_stream_bytes"
	MetricLimit   = "carstate_stream_limit_bytes"
)
