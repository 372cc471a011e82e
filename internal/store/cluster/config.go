package cluster

import (
	"cmp"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// Config configures the engine. In each optional field, the zero value means the default.
type Config struct {
	// Config is the configuration that every engine has. If Partitions is 0, the first start
	// creates 64 partitions, and a later start uses the stored number.
	store.Config

	// URLs are the URLs of the NATS cluster, comma separated. At least one is required.
	URLs string
	// CredsFile is the file of the NATS credentials for URLs. If empty, the login is the one in
	// URLs.
	CredsFile string
	// Replicas is the number of replicas of each stream. If an existing stream has more replicas,
	// Open returns an error. 0 leaves existing streams unchanged; a new stream then gets 1 replica,
	// or 3 if there are several URLs.
	Replicas int

	// StatesBytes is the maximum size of STATES in bytes. 0 means [DefaultStatesBytes].
	StatesBytes int64

	// Known returns the times of the verdicts that this node shows of a vehicle, or zeros. No older answer
	// of another owner replaces them. If nil, every answer is shown.
	Known func(vehicle.ID) (driving, throttle vehicle.UnixMilli)

	Timeouts Timeouts
}

// Timeouts bound the engine's waits. A zero field means the default. Tests use shorter times.
type Timeouts struct {
	// Try is the maximum time of one try of a write. After a failed try, the same bytes are sent
	// again. 0 means 4 s.
	Try time.Duration
	// Stall is how long a subscription may deliver nothing before the engine checks or replaces the
	// subscription. Stall must be several times Beat: if nobody else writes to a stream, its feed
	// delivers only heartbeats, at the interval Beat. 0 means 10 s.
	Stall time.Duration
	// Beat is the interval at which a node writes a heartbeat into each stream that it follows.
	// When the heartbeat comes back on the feed, the node knows how old its copy of the stream is.
	// 0 means 1 s.
	Beat time.Duration
	// Lease is how long a derive node may be silent before other nodes take its partitions. A node
	// renews its lease three times per Lease. 0 means 6 s.
	Lease time.Duration
	// Idle is the interval at which NATS sends idle heartbeats to a subscriber. 0 means 500 ms. The
	// minimum that NATS accepts is 100 ms.
	Idle time.Duration
}

// Limits of the package. internal/store/DESIGN.md says what happens when each limit is reached.
const (
	DefaultStatesBytes = 16 << 30
	recordBytes        = 1 << 30 // TOKENS, SOURCES, AUDIT, ROADS

	defaultPartitions = 64
	clusterReplicas   = 3

	// openBatches is the maximum number of atomic batches that a node has in flight.
	openBatches = 8
	// payloadBytes is the size in bytes that NATS must at least accept for a message. It is the
	// default of NATS.
	payloadBytes = 1 << 20
	// duplicateWindow is how long NATS remembers the id of a commit of samples, to ignore the
	// commit if it is sent again. It is longer than Patience.Store, the time after which no node
	// sends a commit again.
	duplicateWindow = time.Minute
	// leastDuplicateWindow is the shortest duplicate window that NATS accepts. It serves for
	// streams whose writes have no message id.
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
