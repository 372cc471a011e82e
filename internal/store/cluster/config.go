package cluster

import (
	"cmp"
	"time"

	"carstate/internal/store"
)

// Config says where the engine is and what it may use. The zero value of each
// optional field works.
type Config struct {
	// Config is what every engine needs to know. Partitions 0 means 64.
	store.Config

	// URLs of the NATS cluster, comma separated. At least one is required.
	URLs string
	// CredsFile holds the NATS credentials for URLs. Optional.
	CredsFile string
	// Replicas of each stream, never fewer than it has. 0 leaves them as they
	// are; streams made anew then get 1, or 3 with several URLs.
	Replicas int

	// StatesBytes bounds STATES. 0 means [DefaultStatesBytes].
	StatesBytes int64

	Timeouts Timeouts
}

// Timeouts are how long the engine waits for what does not come. A zero field
// means its default; tests are less patient.
type Timeouts struct {
	// Try is how long one try of a write may take before the same bytes are
	// sent again. 0 means 4 s.
	Try time.Duration
	// Stall is how long a subscription may be silent before it is looked
	// at: many heartbeats. 0 means 10 s.
	Stall time.Duration
	// Beat is how often a node writes its heartbeats. 0 means 1 s.
	Beat time.Duration
	// Lease is how long a node that folds may be silent before others take its
	// partitions; it renews its lease three times as often. 0 means 6 s.
	Lease time.Duration
	// Idle is how often the engine shows a subscriber that it is there. 0
	// means 500 ms, and 100 ms is the least that NATS takes.
	Idle time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Try:   cmp.Or(t.Try, 4*time.Second),
		Stall: cmp.Or(t.Stall, 10*time.Second),
		Beat:  cmp.Or(t.Beat, time.Second),
		Lease: cmp.Or(t.Lease, 6*time.Second),
		Idle:  cmp.Or(t.Idle, 500*time.Millisecond),
	}
}

// Limits that the package keeps. See ARCHITECTURE.md for what happens at each.
const (
	DefaultStatesBytes = 16 << 30
	recordBytes        = 1 << 30 // TOKENS, SOURCES, AUDIT, ROADS

	defaultPartitions = 64
	clusterReplicas   = 3

	// openBatches bounds the atomic batches that a node has under way.
	openBatches = 8
	// payloadBytes is what NATS must take in one message, its default.
	payloadBytes = 1 << 20
	// duplicateWindow is how long the engine recognises a commit sent again.
	// It outlasts Patience.Store, after which nobody sends it again.
	duplicateWindow = time.Minute
	// leastDuplicateWindow is the shortest that NATS takes.
	leastDuplicateWindow = 100 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
	if c.StatesBytes == 0 {
		c.StatesBytes = DefaultStatesBytes
	}
	c.Timeouts = c.Timeouts.withDefaults()
	return c
}
