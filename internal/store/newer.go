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

// Newer notes what a process meets that a newer version wrote. That happens on a cluster that is
// upgraded node by node; on one machine the data directory refuses it at the start. The node goes
// on, and where it cannot know, it chooses the safe side:
//
//   - STATES: the answer of the vehicle stays as it is, and becomes stale by its own rule. An empty
//     record is a marker in every version, so a vehicle that is forgotten is not answered. A node
//     that meets a newer state while it starts lacks that answer and would say "unknown": it answers
//     no queries.
//   - STATES and TELEMETRY, in a partition that the node folds: it folds no further. Once a newer
//     node shares the folding, it gives up all its partitions.
//   - TOKENS, SOURCES: a credential that cannot be read may have been revoked. It does not count, and
//     a secret that is not known is answered with 503 and not with 401: it may be that of such a
//     credential, and senders take 401 as final.
//   - Tombstones: the hash is in the subject, so the vehicle counts as forgotten. It may have been
//     allowed again, so nothing of it is folded.
//   - Keys of tombstones: nobody can tell who is forgotten. The node neither answers nor takes
//     telemetry.
//   - ROADS: the tile is left out, and not stored. AUDIT: the event is shown as one that is not
//     understood.
type Newer struct {
	log     *slog.Logger
	records *prometheus.CounterVec // by stream

	// Why the node cannot do a part of its work; nil: it can.
	answers, telemetry atomic.Pointer[error]

	mu  sync.Mutex // guards met
	met []string   // streams, sorted
}

// NewNewer returns a Newer that has met nothing.
func NewNewer(log *slog.Logger) *Newer {
	n := &Newer{log: log, records: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_newer_records_total",
		Help: "How often this node met a record that a newer version wrote and this one cannot read.",
	}, []string{"stream"})}
	for _, stream := range codec.Streams {
		n.records.WithLabelValues(stream)
	}
	return n
}

// Describe and Collect make it a [prometheus.Collector].
func (n *Newer) Describe(ch chan<- *prometheus.Desc) { n.records.Describe(ch) }

// Collect is the other half of it.
func (n *Newer) Collect(ch chan<- prometheus.Metric) { n.records.Collect(ch) }

// Note counts a record, and logs the first of each stream. err says which version wrote it.
func (n *Newer) Note(stream string, err error) {
	n.records.WithLabelValues(stream).Inc()
	n.mu.Lock()
	i, met := slices.BinarySearch(n.met, stream)
	if !met {
		n.met = slices.Insert(n.met, i, stream)
	}
	n.mu.Unlock()
	if !met {
		n.log.Warn("a newer version of carstate stores what this one cannot read: upgrade this node; until then it goes on with what it knows",
			"stream", stream, "this_schema_version", codec.SchemaVersion, "reason", err)
	}
}

// Streams are those in which a newer record was met, sorted.
func (n *Newer) Streams() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.met)
}

var (
	errNewerStates = errors.New("a newer version stored states before this node started, which it cannot read: upgrade this node")
	errNewerKeys   = errors.New("a newer version stored the keys of tombstones, so this node cannot tell who is forgotten: upgrade this node")
)

// LacksStates notes that states are missing among the answers of this node.
func (n *Newer) LacksStates() { n.answers.CompareAndSwap(nil, &errNewerStates) }

// lacksKeys notes that this node cannot tell who is forgotten.
func (n *Newer) lacksKeys() {
	n.answers.Store(&errNewerKeys)
	n.telemetry.Store(&errNewerKeys)
}

// Answers says why this node can answer no query, nil if it can.
func (n *Newer) Answers() error { return errorAt(&n.answers) }

// Telemetry says why this node can take no telemetry, nil if it can.
func (n *Newer) Telemetry() error { return errorAt(&n.telemetry) }

func errorAt(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

// errNewerCredential keeps an older node from claiming that it removed all that names a vehicle.
var errNewerCredential = fmt.Errorf("%w: a token or a source, whose vehicles this node cannot read: do it on an upgraded node", codec.ErrNewer)
