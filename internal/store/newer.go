package store

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/store/codec"
)

// Newer keeps track of data that was written by a newer version of carstate and that this version
// cannot decode. It records in which streams this process has found such data. Such data exists
// while a cluster is upgraded node by node. In a cluster, a node that finds such data continues to
// run, as described below. On one machine, carstate does not start with such data.
//
//   - STATES: the node goes on with the answers of newer owners, because messages have a version of
//     their own ([codec.MessageVersion]), but cannot explain them. If it cannot read the messages
//     either, its last answers become stale; during its start, it then answers no queries at all,
//     because "unknown" would be wrong.
//   - STATES and TELEMETRY, in a partition that the node owns: the node stops folding the
//     partition. Once a node of the newer version has joined, the older node releases all its
//     partitions.
//   - TOKENS, SOURCES: the node treats a credential that it cannot decode as invalid, because the
//     credential may have been revoked. A secret that the node does not know may be the secret of
//     such a credential. The node refuses an unknown secret with status 503 in place of 401,
//     because senders treat 401 as final.
//   - Tombstones: the node treats the vehicle as forgotten, because the record's subject contains
//     the vehicle's hash. The vehicle may have been allowed again, so the node stops folding a
//     partition that has samples of this vehicle.
//   - Keys of tombstones: the node cannot tell which vehicles are forgotten. It neither answers
//     queries nor accepts telemetry.
//   - ROADS: the node ignores the record, which describes a square of the map (a tile), and does
//     not replace it.
//   - AUDIT: the event is shown as one that this version cannot read.
type Newer struct {
	log     *slog.Logger
	records *prometheus.CounterVec // label stream

	lacksStates, lacksKeys atomic.Bool // set for ever by LacksStates and loseKeys
	met                    sync.Map    // the streams; the values have no meaning
}

// NewNewer returns a Newer for a process that has not met data of a newer version yet.
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

func (n *Newer) Describe(ch chan<- *prometheus.Desc) { n.records.Describe(ch) }

func (n *Newer) Collect(ch chan<- prometheus.Metric) { n.records.Collect(ch) }

// Note reports whether err means that a newer version wrote a record to a stream. If so, it counts
// the record, and logs the first such record of each stream.
func (n *Newer) Note(stream string, err error) bool {
	if !codec.IsNewer(err) {
		return false
	}
	n.records.WithLabelValues(stream).Inc()
	if _, met := n.met.LoadOrStore(stream, nil); !met {
		n.log.Warn("a newer version of carstate wrote a record that this node cannot decode: upgrade this node; "+
			"until then it continues without the record",
			"stream", stream, "this_schema_version", codec.SchemaVersion, "reason", err)
	}
	return true
}

// Streams returns the streams in which this process has met a record of a newer version, sorted.
func (n *Newer) Streams() (met []string) {
	for stream := range n.met.Range {
		met = append(met, stream.(string))
	}
	slices.Sort(met)
	return met
}

var (
	errNewerStates = errors.New("a newer version stored states that this node cannot decode, " +
		"so it has no answer for their vehicles: upgrade this node")
	errNewerKeys = errors.New("a newer version stored the tombstone keys, " +
		"so this node cannot tell which vehicles are forgotten: upgrade this node")
)

// LacksStates records that this node has no answer for some vehicles, because it cannot decode
// their states. From then on, Answers returns an error.
func (n *Newer) LacksStates() { n.lacksStates.Store(true) }

// loseKeys records that this node cannot tell which vehicles are forgotten, because it cannot
// decode the tombstone keys. From then on, Answers and Telemetry return an error.
func (n *Newer) loseKeys() { n.lacksKeys.Store(true) }

// Answers returns the reason why this node cannot answer queries, or nil if it can.
func (n *Newer) Answers() error {
	if n.lacksStates.Load() && !n.lacksKeys.Load() {
		return errNewerStates
	}
	return n.Telemetry()
}

// Telemetry returns the reason why this node cannot accept telemetry, or nil if it can.
func (n *Newer) Telemetry() error {
	if n.lacksKeys.Load() {
		return errNewerKeys
	}
	return nil
}

// errNewerCredential means that this node cannot remove a forgotten vehicle from all grants,
// because a newer version wrote the record of a token or a source. The forget then fails, because
// it must not claim that all data of the vehicle is removed.
var errNewerCredential = fmt.Errorf("%w: this node cannot decode the vehicles of a token or a source: "+
	"use an upgraded node", codec.ErrNewer)
