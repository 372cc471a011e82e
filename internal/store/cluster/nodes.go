package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// leaseRecord is the record that a derive node writes periodically. It contains no time, because
// every node measures the age of a lease by its own clock.
type leaseRecord struct {
	// Beat increases with each renewal of the lease. A record with the same Beat as before does not
	// renew it.
	Beat    uint64 `json:"beat"`
	Leaving bool   `json:"leaving,omitempty"`
}

// Leases gives access to the leases, the records by which the derive nodes know of each other.
type Leases struct{ conn *conn }

// Leases returns the engine's leases.
func (e *Engine) Leases() *Leases { return &Leases{e.conn} }

// Stale returns how long a node may be silent before other nodes take its partitions.
func (l *Leases) Stale() time.Duration { return l.conn.config.Timeouts.Lease }

// Renew stores the lease of the node with the given name, which consists of letters and digits.
// beat increases with each renewal, and leaving says that the node is about to end.
func (l *Leases) Renew(ctx context.Context, name string, beat uint64, leaving bool) error {
	subject := codec.MemberSubject(name)
	body, err := json.Marshal(leaseRecord{Beat: beat, Leaving: leaving})
	if err != nil {
		return err
	}
	_, err = l.conn.js.Publish(ctx, subject, codec.Seal(subject, append([]byte{0}, body...)),
		jetstream.WithExpectStream(codec.States))
	return err
}

// Remove removes the lease of the node with the given name. It is no error if there is none.
func (l *Leases) Remove(ctx context.Context, name string) error {
	s, err := l.conn.js.Stream(ctx, codec.States)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(codec.MemberSubject(name)))
}

// Follow calls put for every existing lease and then for every renewal. It returns nil when the
// context ends, and an error if a lease is damaged or the stream STATES was replaced. The lease of
// a node of a newer version cannot be decoded. For such a lease, beat is the sequence of its
// record, and leaving is false.
func (l *Leases) Follow(ctx context.Context, put func(name string, beat uint64, leaving bool)) error {
	f := l.conn.newFeed(codec.States, codec.MemberSubject("*"))
	f.newer = true
	newer := make(map[string]bool) // names of nodes of a newer version
	f.apply = func(r store.Record) error {
		name, _ := codec.MemberOf(r.Subject)
		if r.Newer {
			// A node of a newer version has a share of the partitions, too. It counts as alive only
			// if it renews its lease, because the first record may be old.
			if newer[name] {
				l.conn.newerLease.Store(time.Now().UnixNano())
			}
			newer[name] = true
			put(name, r.Seq, false)
			return nil
		}
		var lease leaseRecord
		if err := json.Unmarshal(r.Body, &lease); err != nil {
			return fmt.Errorf("%w: a lease", codec.ErrDamaged)
		}
		put(name, lease.Beat, lease.Leaving)
		return nil
	}
	return f.Run(ctx, func() {})
}

// NewerFolds reports whether a node of a newer version folds partitions, or did within the
// last Timeouts.Lease.
func (e *Engine) NewerFolds() bool {
	last := e.newerLease.Load()
	return last != 0 && time.Since(time.Unix(0, last)) <= e.config.Timeouts.Lease
}

// ShareRoads implements [store.RoadSharing]. The evidence is the distances and times of this node's
// cars. While the cluster is unreachable, ShareRoads drops the evidence and returns nil.
func (e *Engine) ShareRoads(evidence []byte) error {
	e.tell(roadsPrefix+e.name, append([]byte{0}, evidence...))
	return nil
}

// ListenRoads implements [store.RoadSharing]. If the connection is closed for good, ListenRoads
// only logs a warning, and never calls take.
func (e *Engine) ListenRoads(take func(evidence []byte, err error)) (stop func()) {
	own := roadsPrefix + e.name
	sub, err := e.nc.Subscribe(roadsPrefix+"*", func(m *nats.Msg) {
		if m.Subject != own {
			take(codec.UnsealMessage(m.Subject, m.Data))
		}
	})
	if err != nil { // the connection was closed for good, which ends the node
		e.log.Warn("cannot subscribe to the road evidence of other nodes", "error", err)
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() } // fails if the connection is closed
}
