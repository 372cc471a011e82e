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
// a cluster is upgraded. A node never overwrites such a record. If it is a credential, the node
// treats it as revoked; if a tombstone, the vehicle as forgotten (docs/operations.md). An unknown
// secret may belong to such a credential, so it is refused with 503: senders treat 401 as final.
type Newer struct {
	*prometheus.CounterVec // counts reads, by stream

	log *slog.Logger

	lacksStates, lacksKeys atomic.Bool // never reset
	met                    sync.Map
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

// Note counts a record of a newer version, and logs the first of each stream.
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

func (n *Newer) Answers() error {
	if n.lacksStates.Load() && !n.lacksKeys.Load() {
		return errNewerStates
	}
	return n.Telemetry()
}

func (n *Newer) Telemetry() error {
	if n.lacksKeys.Load() {
		return errNewerKeys
	}
	return nil
}

// errNewerCredential fails a forget, which must not claim that all data of the vehicle is removed.
var errNewerCredential = fmt.Errorf("%w: this node cannot decode the vehicles of a token or a source: "+
	"use an upgraded node", codec.ErrNewer)
