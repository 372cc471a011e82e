package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/access"
	"carstate/internal/store/codec"
)

const auditSubject = "audit.event"

// replicaPause is how long AuditPage waits before it asks again for an event that the
// answering replica does not have yet.
const replicaPause = 20 * time.Millisecond

// Audit stores one event. When it returns nil the event is on disk.
func (k *Keeper) Audit(ctx context.Context, ev access.Event) error {
	record, err := sealJSON(auditSubject, ev)
	if err != nil {
		return err
	}
	_, err = k.e.storeBatch(ctx, Audit, []write{{subject: auditSubject, record: record}})
	return err
}

// AuditPage returns the newest events before the one that is numbered, at most
// limit, newest first; before 0 is the end. older is the before of the next page,
// 0 if there is none.
func (k *Keeper) AuditPage(ctx context.Context, before uint64, limit int) (events []access.Event, older uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := k.e.js.Stream(ctx, Audit)
	if err != nil {
		return nil, 0, err
	}
	state := s.CachedInfo().State
	seq, first := state.LastSeq, max(state.FirstSeq, 1)
	if before != 0 {
		seq = min(seq, before-1)
	}
	events = []access.Event{}
	for ; seq >= first && len(events) < limit; seq-- {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if state.NumDeleted > 0 { // somebody deleted it by hand
				continue
			}
			// The replica that answered lags behind the leader.
			select {
			case <-time.After(replicaPause):
				seq++
				continue
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
		}
		if err != nil {
			return nil, 0, err
		}
		body, err := codec.Unseal(auditSubject, m.Data)
		if err != nil {
			return nil, 0, err
		}
		var ev access.Event
		if err := json.Unmarshal(body, &ev); err != nil {
			return nil, 0, codec.ErrDamaged
		}
		events = append(events, ev)
	}
	if seq >= first {
		older = seq + 1
	}
	return events, older, nil
}
