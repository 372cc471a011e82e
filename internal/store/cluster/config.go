package cluster

import (
	"cmp"
	"time"

	"carstate/internal/store"
)

// Config says where the NATS cluster is and what the engine may use. The zero value of each
// optional field works.
type Config struct {
	// Config is what every engine needs to know. Partitions 0 means 64.
	store.Config

	// URLs of the NATS cluster, comma separated. At least one is required.
	URLs string
	// CredsFile holds the NATS credentials for URLs. If empty, the login is the one in URLs.
	CredsFile string
	// Replicas of each stream. A stream never gets fewer than it has. 0 leaves the number as
	// it is; a new stream then gets 1, or 3 with several URLs.
	Replicas int

	// StatesBytes bounds STATES. 0 means [DefaultStatesBytes].
	StatesBytes int64

	Timeouts Timeouts
}

// Timeouts bound the engine's waits. A zero field means its default; tests use shorter ones.
type Timeouts struct {
	// Try bounds one try of a write, after which the same bytes are sent again. 0 means 4 s.
	Try time.Duration
	// Stall is how long a subscription may be silent before it is checked. It spans many
	// heartbeats. 0 means 10 s.
	Stall time.Duration
	// Beat is the interval of a node's heartbeats. 0 means 1 s.
	Beat time.Duration
	// Lease is how long a node that folds may be silent before others take its partitions. The
	// node renews its lease three times in that time. 0 means 6 s.
	Lease time.Duration
	// Idle is the interval at which NATS sends idle heartbeats to a subscriber. 0 means
	// 500 ms. The least that NATS accepts is 100 ms.
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

// Limits of the package. internal/store/DESIGN.md says what happens at each.
const (
	DefaultStatesBytes = 16 << 30
	recordBytes        = 1 << 30 // TOKENS, SOURCES, AUDIT, ROADS

	defaultPartitions = 64
	clusterReplicas   = 3

	// openBatches bounds the atomic batches that a node has in flight.
	openBatches = 8
	// payloadBytes is the message size that NATS must accept. It is the default of NATS.
	payloadBytes = 1 << 20
	// duplicateWindow is how long NATS recognizes a commit that is sent again. It is longer
	// than Patience.Store, after which no node sends the commit again.
	duplicateWindow = time.Minute
	// leastDuplicateWindow is the shortest window that NATS accepts.
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
