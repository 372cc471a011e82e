package store

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Config is what every engine and the [RecordStore] need to know. The zero value of each
// field works, but for DataDir where an engine keeps its files there.
type Config struct {
	// DataDir is the node's directory. It belongs to one process at a time.
	DataDir string
	// Partitions into which vehicles are spread. They are fixed at the first start. Later
	// it must be 0 or the same. 0 means the engine's own choice.
	Partitions int
	// Retention is how long telemetry is kept after it was folded. 0 means an hour.
	Retention time.Duration
	// TelemetryBytes bounds the telemetry. 0 means [DefaultTelemetryBytes].
	TelemetryBytes int64

	Patience Patience

	Newer    *Newer                // what newer versions wrote; nil: the part has one of its own
	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // nil: discarded
	Registry prometheus.Registerer // nil: not exported
	Tracer   trace.Tracer          // nil: nothing is traced
}

// Patience is how long the store waits. A zero field means its default; tests are less
// patient.
type Patience struct {
	// Store is how long a record or a commit of samples is tried. 0 means 20 s.
	Store time.Duration
	// Markers is how long a forgotten vehicle's name stays in STATES, for the nodes that
	// are out of reach meanwhile. 0 means 10 min.
	Markers time.Duration
	// Roads is how often profiles of roads are stored. 0 means 5 min.
	Roads time.Duration
}

// Limits of every engine. See ARCHITECTURE.md for what happens at each.
const (
	DefaultRetention      = time.Hour
	DefaultTelemetryBytes = 4 << 30

	defaultStore = 20 * time.Second

	// MaxBatch is how many writes one [Records.Store] takes.
	MaxBatch = 1000
	// BatchStates is how many states go into one batch with the cursor, and the most
	// that what one [Partition.Next] returns can touch.
	BatchStates = MaxBatch - 1
	// MaxStates is how many states one [Partition.Commit] can store, in as many batches
	// as it takes. A fold of a backlog holds so many, because a vehicle that is in it
	// several times is then stored once.
	MaxStates = 16 * BatchStates
	// MaxLoad is how many vehicles one [Partition.Load] can ask for.
	MaxLoad = MaxBatch - 1

	// requestTimeout bounds one question to the engine that nobody waits for with a
	// deadline of their own.
	requestTimeout = 5 * time.Second
)

// WithDefaults is the configuration with a default in place of each zero.
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

// Anyone lets [Engine.Take] take a partition from whoever has it.
func Anyone(string) bool { return true }
