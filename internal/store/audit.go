package store

import (
	"context"
	"encoding/json"

	"carstate/internal/access"
	"carstate/internal/store/codec"
)

// Audit stores one event. When it returns nil the event is on disk.
func (k *Keeper) Audit(ctx context.Context, ev access.Event) error {
	record, err := sealJSON(codec.AuditSubject, ev)
	if err != nil {
		return err
	}
	_, err = k.engine.Store(ctx, codec.Audit, []Write{{Subject: codec.AuditSubject, Record: record}})
	return err
}

// AuditPage returns the newest events before the one that is numbered, at most
// limit, newest first; before 0 is the end. older is the before of the next page,
// 0 if there is none.
func (k *Keeper) AuditPage(ctx context.Context, before uint64, limit int) (events []access.Event, older uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	records, older, err := k.engine.Before(ctx, codec.Audit, before, limit)
	if err != nil {
		return nil, 0, err
	}
	events = make([]access.Event, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.Body, &events[i]); err != nil {
			return nil, 0, codec.ErrDamaged
		}
	}
	return events, older, nil
}
