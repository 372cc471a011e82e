package store

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a storage engine and the [RecordStore]. A zero field means the default. A
// storage engine that keeps its records in DataDir requires that field.
type Config struct {
	// DataDir is the node's data directory. Only one process may use it at a time.
	DataDir string
	// Partitions is the number of partitions. It is stored at the first start and cannot change. 0
	// means the engine's default at the first start, and the stored number at a later start. A
	// later start fails if Partitions is neither 0 nor the stored number.
	Partitions int
	// Retention is how long telemetry is kept after it was stored. 0 means one hour. Telemetry that
	// is not folded into states yet is kept longer.
	Retention time.Duration
	// TelemetryBytes is the maximum size of the stream TELEMETRY, in bytes. 0 means
	// [DefaultTelemetryBytes].
	TelemetryBytes int64

	Patience Patience

	Newer    *Newer                // records of newer versions; if nil, a new one is created
	Now      func() time.Time      // if nil, time.Now
	Log      *slog.Logger          // if nil, nothing is logged
	Registry prometheus.Registerer // if nil, metrics are not exported
}

// Patience configures how long the store waits. A zero field means the default. Tests use
// shorter times.
type Patience struct {
	// Store is how long a write of a record or of samples is retried before it fails. 0 means 20 s.
	Store time.Duration
	// Markers is the minimum time for which the marker of a forgotten vehicle stays in the stream
	// STATES, so that a node that was disconnected still receives it. In the end, the marker must
	// be removed, because its subject contains the vehicle's id. Markers is also the minimum time
	// between two erasures of forgotten vehicles. 0 means 10 min.
	Markers time.Duration
	// Roads is the interval at which learned profiles of roads are stored. 0 means 5 min.
	Roads time.Duration
}

// Defaults and limits of every engine.
const (
	DefaultRetention      = time.Hour
	DefaultTelemetryBytes = 4 << 30

	defaultStore = 20 * time.Second
	// defaultRoads is the default interval at which profiles of roads are stored. A profile changes
	// at most once in 15 minutes, so a shorter interval gains little. A crash loses at most 20
	// minutes of evidence: a complete quarter hour, whose profile waits up to 5 minutes to be
	// stored, and these 5 minutes.
	defaultRoads = 5 * time.Minute

	// MaxBatch is the maximum number of writes of one [Records.Store].
	MaxBatch = 1000
	// BatchStates is the maximum number of states in one batch of writes, which also contains the
	// cursor. One [Partition.Next] also returns samples of at most BatchStates vehicles.
	BatchStates = MaxBatch - 1

	// requestTimeout is the time limit of an ordinary request to the engine.
	requestTimeout = 5 * time.Second
)

// WithDefaults returns a copy of c in which defaults replace zero values.
func (c Config) WithDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Newer == nil {
		c.Newer = NewNewer(c.Log)
	}
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.TelemetryBytes = cmp.Or(c.TelemetryBytes, DefaultTelemetryBytes)
	c.Patience = Patience{
		Store:   cmp.Or(c.Patience.Store, defaultStore),
		Markers: cmp.Or(c.Patience.Markers, 10*time.Minute),
		Roads:   cmp.Or(c.Patience.Roads, defaultRoads),
	}
	return c
}

// Anyone always returns true. A caller passes it to [Engine.Take] as free, to take a partition from
// any owner.
func Anyone(string) bool { return true }

// ErrConfig marks, for errors.Is, an error of the configuration: a file that it names cannot be
// used, or it contradicts what is stored. A new start with the same configuration fails in the same
// way.
var ErrConfig = errors.New("wrong configuration")

type configError struct{ error }

func (e configError) Unwrap() error        { return e.error }
func (e configError) Is(target error) bool { return target == ErrConfig }

// ConfigError returns err as an ErrConfig, with the same text.
func ConfigError(err error) error { return configError{err} }
