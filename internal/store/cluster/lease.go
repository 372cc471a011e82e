package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// leaseRecord is what a node that folds writes again and again. It carries no
// time: whoever reads it judges by their own clock.
type leaseRecord struct {
	Beat    uint64 `json:"beat"` // grows with each renewal; the same record stored again is none
	Leaving bool   `json:"leaving,omitempty"`
}

// Leases are the records by which the nodes that fold know of each other. They
// are of use for dividing partitions only: that nobody writes what is not theirs
// is up to the cursors.
type Leases struct{ e *Engine }

// Leases returns the engine's leases.
func (e *Engine) Leases() *Leases { return &Leases{e} }

// Stale is how long a node may be silent.
func (l *Leases) Stale() time.Duration { return l.e.config.Timeouts.Lease }

// Renew stores the lease of a node. A name is letters and digits.
func (l *Leases) Renew(ctx context.Context, name string, beat uint64, leaving bool) error {
	subject := codec.MemberSubject(name)
	body, err := json.Marshal(leaseRecord{Beat: beat, Leaving: leaving})
	if err != nil {
		return err
	}
	_, err = l.e.js.Publish(ctx, subject, codec.Seal(subject, append([]byte{0}, body...)), jetstream.WithExpectStream(codec.States))
	return err
}

// Remove removes the lease of a node that has long been gone.
func (l *Leases) Remove(ctx context.Context, name string) error {
	s, err := l.e.js.Stream(ctx, codec.States)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(codec.MemberSubject(name)))
}

// Follow calls put for every lease there is and then for every renewal, until the
// context ends.
func (l *Leases) Follow(ctx context.Context, put func(name string, beat uint64, leaving bool)) error {
	f := newFeed(l.e, codec.States)
	f.filters = []string{codec.MemberSubject("*")}
	f.apply = func(r store.Record) error {
		var lease leaseRecord
		if err := json.Unmarshal(r.Body, &lease); err != nil {
			return fmt.Errorf("%w: a lease", codec.ErrDamaged)
		}
		put(strings.TrimPrefix(r.Subject, codec.MemberSubject("")), lease.Beat, lease.Leaving)
		return nil
	}
	return f.run(ctx)
}
