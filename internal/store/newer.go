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

// Newer keeps track of data that a newer version wrote and this one cannot decode, as exists while
// a cluster is upgraded node by node. On one machine, carstate does not start with it.
//
//   - STATES: the node keeps its last answer for the vehicle. If it meets such a state during its
//     start, it answers no queries, because "unknown" would be wrong.
//   - STATES and TELEMETRY of an owned partition: the node stops folding it. Once a newer node has
//     joined, the older releases all its partitions.
//   - TOKENS, SOURCES: the credential is invalid, because it may have been revoked. As an unknown
//     secret may be its own, the node refuses it with 503: senders treat 401 as final.
//   - Tombstones: the vehicle is forgotten. It may have been allowed again, so the node stops
//     folding a partition that has samples of it.
//   - Keys of tombstones: the node neither answers queries nor accepts telemetry.
//   - ROADS: the node ignores the record, and does not replace it.
//   - AUDIT: the event is shown as one that this version cannot read.
type Newer struct {
	*prometheus.CounterVec // records, by stream

	log *slog.Logger

	lacksStates, lacksKeys atomic.Bool // never reset
	met                    sync.Map    // the streams; the values have no meaning
}

func NewNewer(log *slog.Logger) *Newer {
	n := &Newer{log: log, CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_newer_records_total",
		Help: "Reads of a record that a newer version wrote and this node cannot decode.",
	}, []string{"stream"})}
	for _, stream := range codec.Streams {
		n.WithLabelValues(stream)
	}
	return n
}

// Note reports whether err means that a newer version wrote a record to a stream. If so, it counts
// it, and logs the first of each stream.
func (n *Newer) Note(stream string, err error) bool {
	if !codec.IsNewer(err) {
		return false
	}
	n.WithLabelValues(stream).Inc()
	if _, met := n.met.LoadOrStore(stream, nil); !met {
		n.log.Warn("a newer version of carstate wrote a record that this node cannot decode: upgrade this node; "+
			"until then it continues without the record",
			"stream", stream, "this_schema_version", codec.SchemaVersion, "reason", err)
	}
	return true
}

// Streams returns the streams that have such records.
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

func (n *Newer) LacksStates() { n.lacksStates.Store(true) }

func (n *Newer) loseKeys() { n.lacksKeys.Store(true) }

// Answers returns why this node cannot answer queries.
func (n *Newer) Answers() error {
	if n.lacksStates.Load() && !n.lacksKeys.Load() {
		return errNewerStates
	}
	return n.Telemetry()
}

// Telemetry returns why this node cannot accept telemetry.
func (n *Newer) Telemetry() error {
	if n.lacksKeys.Load() {
		return errNewerKeys
	}
	return nil
}

// A forget fails with it, because it must not claim that all data of the vehicle is removed.
var errNewerCredential = fmt.Errorf("%w: this node cannot decode the vehicles of a token or a source: "+
	"use an upgraded node", codec.ErrNewer)
