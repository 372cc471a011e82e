package store

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/store/codec"
)

// Newer records that this process met data of a newer version. That happens on a cluster that is
// upgraded node by node. On one machine, the data directory refuses such data at the start. A
// cluster node continues. If it cannot know something, it chooses the safe side:
//
//   - STATES: the node keeps the vehicle's last answer, which becomes stale in the usual way. An
//     empty record means a forgotten vehicle in every version, so a forgotten vehicle is never
//     answered. If a node meets a newer state during its start, it has no answer for that vehicle
//     and would say "unknown", so it answers no queries at all.
//   - STATES and TELEMETRY, in a partition that the node owns: the node stops folding the
//     partition. Once a node of the newer version has joined, the older node releases all its
//     partitions.
//   - TOKENS, SOURCES: a credential that cannot be decoded may have been revoked, so it is
//     invalid. An unknown secret may be the secret of such a credential. It gets 503 in place of
//     401, because senders treat 401 as final.
//   - Tombstones: the hash is in the subject, so the vehicle is treated as forgotten. It may
//     have been allowed again, so none of its samples is folded.
//   - Keys of tombstones: the node cannot tell which vehicles are forgotten. It neither answers
//     queries nor accepts telemetry.
//   - ROADS: the node ignores the tile of the map that the record describes, and does not write
//     that tile.
//   - AUDIT: the event is shown as one that this version cannot read.
type Newer struct {
	log     *slog.Logger
	records *prometheus.CounterVec // label stream

	// answers and telemetry each contain the reason why the node cannot do that part of its work,
	// or nil.
	answers, telemetry atomic.Pointer[error]

	mu  sync.Mutex // guards met
	met []string   // streams, sorted
}

// NewNewer returns a Newer that has recorded nothing.
func NewNewer(log *slog.Logger) *Newer {
	n := &Newer{log: log, records: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_newer_records_total",
		Help: "Reads of a record that a newer version wrote and this node cannot decode.",
	}, []string{"stream"})}
	for _, stream := range codec.Streams {
		n.records.WithLabelValues(stream)
	}
	return n
}

// Describe implements [prometheus.Collector].
func (n *Newer) Describe(ch chan<- *prometheus.Desc) { n.records.Describe(ch) }

// Collect implements [prometheus.Collector].
func (n *Newer) Collect(ch chan<- prometheus.Metric) { n.records.Collect(ch) }

// Note counts a record of a stream that a newer version wrote, and logs the first such record of
// each stream. err says which version wrote the record.
func (n *Newer) Note(stream string, err error) {
	n.records.WithLabelValues(stream).Inc()
	n.mu.Lock()
	i, met := slices.BinarySearch(n.met, stream)
	if !met {
		n.met = slices.Insert(n.met, i, stream)
	}
	n.mu.Unlock()
	if !met {
		n.log.Warn("a newer version of carstate wrote a record that this node cannot decode: upgrade this node; "+
			"until then it continues without the record",
			"stream", stream, "this_schema_version", codec.SchemaVersion, "reason", err)
	}
}

// Streams returns the streams in which this process has met a record of a newer version, sorted.
func (n *Newer) Streams() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.met)
}

var (
	errNewerStates = errors.New("a newer version stored states that this node cannot decode, " +
		"so it has no answer for their vehicles: upgrade this node")
	errNewerKeys = errors.New("a newer version stored the tombstone keys, " +
		"so this node cannot tell which vehicles are forgotten: upgrade this node")
)

// LacksStates records that this node has no answer for some vehicles.
func (n *Newer) LacksStates() { n.answers.CompareAndSwap(nil, &errNewerStates) }

// lacksKeys records that this node cannot tell which vehicles are forgotten.
func (n *Newer) lacksKeys() {
	n.answers.Store(&errNewerKeys)
	n.telemetry.Store(&errNewerKeys)
}

// Answers returns the reason why this node cannot answer queries, or nil if it can.
func (n *Newer) Answers() error { return errorAt(&n.answers) }

// Telemetry returns the reason why this node cannot accept telemetry, or nil if it can.
func (n *Newer) Telemetry() error { return errorAt(&n.telemetry) }

func errorAt(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

// errNewerCredential means that a newer version wrote a token or a source. This node cannot remove
// a vehicle from its grant, so it must not claim to have removed all data of the vehicle.
var errNewerCredential = fmt.Errorf("%w: this node cannot decode the vehicles of a token or a source: "+
	"use an upgraded node", codec.ErrNewer)
