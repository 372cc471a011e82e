package cluster

import (
	"cmp"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// Config configures the engine. In optional fields, zero means the default.
type Config struct {
	// If Partitions is 0, the first start creates 64.
	store.Config

	// comma separated; at least one
	URLs string
	// If CredsFile is empty, the login is the one in URLs.
	CredsFile string
	// Replicas of each stream. Fewer than an existing stream has are an error. 0 leaves existing
	// streams; a new one then gets 1, or 3 if there are several URLs.
	Replicas int

	StatesBytes int64

	// Known returns the times of the verdicts that this node shows of a vehicle, or zeros. No older
	// answer of another owner replaces them. If nil, every answer is shown.
	Known func(vehicle.ID) (driving, throttle vehicle.UnixMilli)

	Timeouts Timeouts
}

type Timeouts struct {
	// Try bounds one try of a write. After it, the same bytes are sent again. 0: 4 s.
	Try time.Duration
	// Stall is how long a subscription may deliver nothing before it is checked or replaced:
	// several times Beat, as a feed may have only heartbeats. 0: 10 s.
	Stall time.Duration
	// Beat is the interval of the heartbeats by which a node knows how old its copy of a stream is.
	// 0: 1 s.
	Beat time.Duration
	// Lease is how long a derive node may be silent before others take its partitions. It is
	// renewed three times per Lease. 0: 6 s.
	Lease time.Duration
	// Idle is the interval of NATS's heartbeats to a subscriber, at least 100 ms. 0: 500 ms.
	Idle time.Duration
}

// internal/store/DESIGN.md says what happens at each limit.
const (
	DefaultStatesBytes = 16 << 30
	recordBytes        = 1 << 30 // TOKENS, SOURCES, AUDIT, ROADS

	defaultPartitions = 64
	clusterReplicas   = 3

	// openBatches bounds the atomic batches that a node has in flight.
	openBatches = 8
	// payloadBytes is the size of a message that NATS must accept, its default.
	payloadBytes = 1 << 20
	// duplicateWindow is how long NATS remembers the id of a commit, to ignore it if it is sent
	// again. It is longer than Patience.Store, after which no node does that.
	duplicateWindow = time.Minute
	// leastDuplicateWindow is the minimum of NATS, for streams whose writes have no message id.
	leastDuplicateWindow = 100 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
	c.StatesBytes = cmp.Or(c.StatesBytes, DefaultStatesBytes)
	c.Timeouts = Timeouts{
		Try:   cmp.Or(c.Timeouts.Try, 4*time.Second),
		Stall: cmp.Or(c.Timeouts.Stall, 10*time.Second),
		Beat:  cmp.Or(c.Timeouts.Beat, time.Second),
		Lease: cmp.Or(c.Timeouts.Lease, 6*time.Second),
		Idle:  cmp.Or(c.Timeouts.Idle, 500*time.Millisecond),
	}
	return c
}
