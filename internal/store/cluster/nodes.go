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

// Beat is a time only to the node that writes it. Every other node measures, by its own clock, how
// long ago Beat changed.
type leaseRecord struct {
	Beat    uint64 `json:"beat"`
	Leaving bool   `json:"leaving,omitzero"`
}

type Leases struct{ e *Engine }

func (e *Engine) Leases() *Leases { return &Leases{e} }

func (l *Leases) Stale() time.Duration { return l.e.config.Timeouts.Lease }

func (l *Leases) Renew(ctx context.Context, name string, beat uint64, leaving bool) error {
	w, err := store.AppendJSON(nil, codec.MemberSubject(name), leaseRecord{Beat: beat, Leaving: leaving})
	if err == nil {
		_, err = l.e.js.Publish(ctx, w[0].Subject, w[0].Record, jetstream.WithExpectStream(codec.States))
	}
	return err
}

func (l *Leases) Remove(ctx context.Context, name string) error {
	return l.e.Remove(ctx, codec.States, []store.Record{{Subject: codec.MemberSubject(name)}})
}

// The lease of a node of a newer version cannot be decoded: Follow takes its sequence for its beat.
func (l *Leases) Follow(ctx context.Context, put func(name string, beat uint64, leaving bool)) error {
	newer := make(map[string]bool)
	apply := func(r store.Record) error {
		name, _ := codec.MemberOf(r.Subject)
		if r.Newer {
			// The newer node has a share of the partitions, too, but only a second record shows
			// that it is alive.
			if newer[name] {
				l.e.newerLease.Store(new(time.Now()))
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
	f := &feed{e: l.e, stream: codec.States, filters: []string{codec.MemberSubject("*")}, apply: apply}
	return f.Run(ctx, func() {})
}

func (e *Engine) NewerFolds() bool {
	at := e.newerLease.Load()
	return at != nil && time.Since(*at) <= e.config.Timeouts.Lease
}

func (e *Engine) ShareRoads(evidence []byte) {
	e.tell(roadsPrefix+e.name, append([]byte{0}, evidence...))
}

func (e *Engine) ListenRoads(take func(evidence []byte, err error)) (stop func()) {
	own := roadsPrefix + e.name
	return e.listen(roadsPrefix, func(m *nats.Msg) {
		if m.Subject != own {
			take(codec.UnsealMessage(m.Subject, m.Data))
		}
	})
}
