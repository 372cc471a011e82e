package cluster

import (
	"cmp"
	"time"

	"carstate/internal/store"
)

// Config says where the NATS cluster is and what the engine may use. In each optional field, the
// zero value means the default.
type Config struct {
	// Config is the configuration that every engine needs. Partitions 0 means 64 at the first
	// start, and the stored number at a later start.
	store.Config

	// URLs are the URLs of the NATS cluster, comma separated. At least one is required.
	URLs string
	// CredsFile is the file of the NATS credentials for URLs. If empty, the login is the one in
	// URLs.
	CredsFile string
	// Replicas is the number of replicas of each stream. An existing stream is never changed to
	// fewer replicas. 0 leaves existing streams unchanged; a new stream then gets 1 replica, or 3
	// if there are several URLs.
	Replicas int

	// StatesBytes is the size limit of STATES. 0 means [DefaultStatesBytes].
	StatesBytes int64

	Timeouts Timeouts
}

// Timeouts bound the engine's waits. Each field that is zero has a default. Tests use shorter ones.
type Timeouts struct {
	// Try bounds one try of a write. After a try that fails, the same bytes are sent again. 0 means
	// 4 s.
	Try time.Duration
	// Stall is how long a subscription may be silent before it is checked. Many heartbeats are
	// expected in that time. 0 means 10 s.
	Stall time.Duration
	// Beat is the interval of a node's heartbeats. 0 means 1 s.
	Beat time.Duration
	// Lease is how long a derive node may be silent before other nodes take its partitions. A node
	// renews its lease three times per Lease. 0 means 6 s.
	Lease time.Duration
	// Idle is the interval at which NATS sends idle heartbeats to a subscriber. 0 means 500 ms. The
	// minimum that NATS accepts is 100 ms.
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

// Limits of the package. internal/store/DESIGN.md says what happens when each limit is reached.
const (
	DefaultStatesBytes = 16 << 30
	recordBytes        = 1 << 30 // TOKENS, SOURCES, AUDIT, ROADS

	defaultPartitions = 64
	clusterReplicas   = 3

	// openBatches is the maximum number of atomic batches that a node has in flight.
	openBatches = 8
	// payloadBytes is the message size that NATS must accept. It is the default of NATS.
	payloadBytes = 1 << 20
	// duplicateWindow is how long NATS recognizes a commit that is sent again. It is longer than
	// Patience.Store, the time after which no node sends a commit again.
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
