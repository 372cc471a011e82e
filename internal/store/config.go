package store

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Config configures an engine and the [RecordStore]. The zero value of each field is usable, except
// that DataDir is required by an engine that keeps its files there.
type Config struct {
	// DataDir is the node's data directory. Only one process may use it at a time.
	DataDir string
	// Partitions is the number of partitions, fixed at the first start. 0 means the engine's
	// default at the first start, and the stored number at a later one. A later start with any
	// other number fails.
	Partitions int
	// Retention is how long telemetry is kept after it was stored. 0 means one hour. Telemetry that
	// is not folded yet is kept longer.
	Retention time.Duration
	// TelemetryBytes is the maximum size of TELEMETRY. 0 means [DefaultTelemetryBytes].
	TelemetryBytes int64

	Patience Patience

	Newer    *Newer                // records of newer versions; if nil, a new one is created
	Now      func() time.Time      // if nil, time.Now
	Log      *slog.Logger          // if nil, nothing is logged
	Registry prometheus.Registerer // if nil, metrics are not exported
	Tracer   trace.Tracer          // if nil, nothing is traced
}

// Patience configures how long the store waits. A zero field means the default. Tests use
// shorter times.
type Patience struct {
	// Store is how long a write of a record or of samples is retried. 0 means 20 s.
	Store time.Duration
	// Markers is how long the name of a forgotten vehicle stays in STATES, in the subject of its
	// marker (see DESIGN.md), so that a node that was disconnected still receives the marker. 0
	// means 10 min.
	Markers time.Duration
	// Roads is the interval at which profiles of roads are stored. 0 means 5 min.
	Roads time.Duration
}

// Limits of every engine. DESIGN.md says what happens at each limit.
const (
	DefaultRetention      = time.Hour
	DefaultTelemetryBytes = 4 << 30

	defaultStore = 20 * time.Second

	// MaxBatch is the maximum number of writes of one [Records.Store].
	MaxBatch = 1000
	// BatchStates is the maximum number of states in one batch, which also contains the cursor. It
	// is also the maximum number of vehicles in the samples that one [Partition.Next] returns.
	BatchStates = MaxBatch - 1
	// MaxStates is the maximum number of states of one [Partition.Commit], which stores them in
	// several batches if necessary. It is large so that a fold of a backlog stores each vehicle
	// once, even if the backlog has many samples of the vehicle.
	MaxStates = 16 * BatchStates
	// MaxLoad is the maximum number of vehicles of one [Partition.Load].
	MaxLoad = MaxBatch - 1

	// requestTimeout limits the time of a request to the engine if the caller has set no deadline.
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

// Anyone is an argument for [Engine.Take] that allows taking a partition from any owner.
func Anyone(string) bool { return true }
