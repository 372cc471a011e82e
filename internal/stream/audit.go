package stream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/access"
)

const auditSubject = "audit.event"

// Audit stores one event. When it returns nil the event is on disk.
func (k *Keeper) Audit(ctx context.Context, ev access.Event) error {
	record, err := sealJSON(auditSubject, ev)
	if err != nil {
		return err
	}
	_, err = k.e.storeBatch(ctx, Audit, []write{{subject: auditSubject, record: record}})
	return err
}

// AuditTail returns the newest events, at most limit, newest first.
func (k *Keeper) AuditTail(ctx context.Context, limit int) ([]access.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := k.e.js.Stream(ctx, Audit)
	if err != nil {
		return nil, err
	}
	state := s.CachedInfo().State
	events := []access.Event{}
	for seq := state.LastSeq; seq >= max(state.FirstSeq, 1) && len(events) < limit; seq-- {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		body, err := unseal(auditSubject, m.Data)
		if err != nil {
			return nil, err
		}
		var ev access.Event
		if err := json.Unmarshal(body, &ev); err != nil {
			return nil, errDamaged
		}
		events = append(events, ev)
	}
	return events, nil
}
