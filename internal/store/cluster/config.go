package cluster

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"carstate/internal/store/cluster/embedded"
)

// Config says where the engine is and what it may use. The zero value of each
// optional field works.
type Config struct {
	// DataDir is the directory of the embedded engine. It belongs to one
	// process at a time.
	DataDir string
	// SyncInterval relaxes the embedded engine: data reaches the disk this
	// long after it was acknowledged. Zero means before.
	SyncInterval time.Duration

	// URLs of an external NATS cluster, comma separated. Empty: embedded.
	URLs string
	// CredsFile holds the NATS credentials for URLs. Optional.
	CredsFile string
	// Replicas of each stream, never fewer than it has. 0 leaves them as they
	// are; streams made anew then get 1, or 3 with several URLs.
	Replicas int

	// Partitions into which vehicles are spread. Fixed when the streams are
	// made; later it must be 0 or the same. 0 means 1 embedded, 64 outside.
	Partitions int
	// Retention is how long telemetry is kept after it was folded. 0 means
	// an hour.
	Retention time.Duration
	// TelemetryBytes and StatesBytes bound the two large streams.
	// 0 means [DefaultTelemetryBytes] and [DefaultStatesBytes].
	TelemetryBytes, StatesBytes int64

	Patience Patience

	// Answers is filled by Open from the files of the embedded engine, which
	// it reads through anyway. Optional: [Engine.FollowStates] yields all.
	Answers embedded.Answers

	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // nil: discarded
	Registry prometheus.Registerer // nil: not exported
	Tracer   trace.Tracer          // nil: nothing is traced
}

// Patience is how long the engine waits for what does not come. A zero field
// means its default; tests are less patient.
type Patience struct {
	// Try is how long one try of a write may take before the same bytes are
	// sent again. 0 means 4 s.
	Try time.Duration
	// Store is how long one commit of samples is tried, below
	// duplicateWindow. 0 means 20 s.
	Store time.Duration
	// Stall is how long a subscription may be silent before it is looked
	// at: many heartbeats. 0 means 10 s.
	Stall time.Duration
	// Beat is how often a node writes its heartbeats. 0 means 1 s.
	Beat time.Duration
	// Markers is how long a forgotten vehicle's name stays in STATES, for the
	// nodes that are out of reach meanwhile. 0 means 10 min.
	Markers time.Duration
	// Lease is how long a node that folds may be silent before others take its
	// partitions; it renews its lease three times as often. 0 means 6 s.
	Lease time.Duration
	// Roads is how often profiles of roads are stored. 0 means 5 min.
	Roads time.Duration
	// Idle is how often the engine shows a subscriber that it is there. 0
	// means 500 ms, and 100 ms is the least that NATS takes.
	Idle time.Duration
}

func (p Patience) withDefaults() Patience {
	return Patience{
		Try:     cmp.Or(p.Try, 4*time.Second),
		Store:   cmp.Or(p.Store, 20*time.Second),
		Stall:   cmp.Or(p.Stall, 10*time.Second),
		Beat:    cmp.Or(p.Beat, time.Second),
		Markers: cmp.Or(p.Markers, 10*time.Minute),
		Lease:   cmp.Or(p.Lease, 6*time.Second),
		Roads:   cmp.Or(p.Roads, defaultRoads),
		Idle:    cmp.Or(p.Idle, 500*time.Millisecond),
	}
}

// Limits that the package keeps. See ARCHITECTURE.md for what happens at each.
const (
	DefaultRetention      = time.Hour
	DefaultTelemetryBytes = 4 << 30
	DefaultStatesBytes    = 16 << 30
	recordBytes           = 1 << 30 // TOKENS, SOURCES, AUDIT, ROADS

	embeddedPartitions = 1
	externalPartitions = 64
	clusterReplicas    = 3

	// maxBatch is JetStream's limit of messages in an atomic batch.
	maxBatch = 1000
	// openBatches bounds the atomic batches that a node has under way.
	openBatches = 8
	// maxCommitSamples leaves room for the cursor in the batch that folds
	// one commit of all different vehicles.
	maxCommitSamples = maxBatch - 1
	// maxCommitBytes is where a commit ends. The last sample may exceed it,
	// by at most maxSampleBytes, which stays below payloadBytes.
	maxCommitBytes = 512 << 10
	// maxSampleBytes is more than the largest sample of 65,535 trouble codes.
	maxSampleBytes = 400 << 10
	// payloadBytes is what NATS must take in one message, its default.
	payloadBytes = 1 << 20
	// duplicateWindow is how long the engine recognises a commit sent again.
	// It outlasts Patience.Store, after which nobody sends it again.
	duplicateWindow = time.Minute
	// leastDuplicateWindow is the shortest that NATS takes.
	leastDuplicateWindow = 100 * time.Millisecond
)

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.TelemetryBytes == 0 {
		c.TelemetryBytes = DefaultTelemetryBytes
	}
	if c.StatesBytes == 0 {
		c.StatesBytes = DefaultStatesBytes
	}
	c.Patience = c.Patience.withDefaults()
	return c
}

func (c Config) embedded() bool { return c.URLs == "" }
