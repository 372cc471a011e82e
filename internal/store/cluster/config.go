package cluster

import (
	"cmp"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// Any zero field but URLs means its default.
type Config struct {
	// If Partitions is 0, the first start creates 64.
	store.Config

	URLs      string // comma separated; at least one
	CredsFile string // If CredsFile is empty, the login is the one in URLs.
	// If Replicas is 0, existing streams keep theirs; a new one gets 1, or 3 if there are several
	// URLs. Fewer than a stream has are an error.
	Replicas int

	StatesBytes int64
	Streams     int // of telemetry; 0: the first start creates one per 128 partitions, at most 8

	// Known returns the times of the verdicts that this node shows of a vehicle, or zeros.
	Known func(vehicle.ID) (driving, throttle signal.UnixMilli)

	Timeouts Timeouts
}

type Timeouts struct {
	Try  time.Duration // After Try without a response, a write is repeated. 0: 4 s.
	Beat time.Duration // Beat is the interval of heartbeats. 0: 1 s.
	// After Lease without a renewal by a derive node, others take its partitions. 0: 6 s.
	Lease time.Duration
}

const (
	DefaultStatesBytes = 16 << 30
	recordBytes        = 1 << 30 // limit of TOKENS, SOURCES, AUDIT, ROADS

	defaultPartitions = 64
	clusterReplicas   = 3
	// Each stream of telemetry costs CPU (docs/scale.md).
	partitionsPerStream, maxStreams = 128, 8

	// After stallBeats times Beat without a message, a subscription is checked or replaced. A feed
	// receives at least heartbeats.
	stallBeats = 10

	openBatches  = 8
	payloadBytes = 1 << 20 // the largest message that NATS accepts by default
	// duplicateWindow is how long NATS remembers the id of a commit: longer than Patience.Store,
	// after which no node sends it again.
	duplicateWindow = time.Minute
	// leastDuplicateWindow is the minimum of NATS, for streams whose writes have no id.
	leastDuplicateWindow = 100 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
	c.StatesBytes = cmp.Or(c.StatesBytes, DefaultStatesBytes)
	c.Timeouts = Timeouts{
		Try:   cmp.Or(c.Timeouts.Try, 4*time.Second),
		Beat:  cmp.Or(c.Timeouts.Beat, time.Second),
		Lease: cmp.Or(c.Timeouts.Lease, 6*time.Second),
	}
	return c
}
