package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

const (
	eraseEvery    = 10 * time.Second
	forgetTimeout = time.Minute    // after which a forget without a note of its end counts as interrupted
	eraseTimeout  = 24 * time.Hour // An erasure may rewrite tens of millions of states.
)

// Only the owner of partition 0 erases. A former owner may, too, as every step can be repeated. A
// node whose engine has failed must not: its tombstones may be those of a replaced stream.
func (k *RecordStore) Erase(ctx context.Context) {
	for range periodic.Every(ctx, eraseEvery) {
		if k.engine.Alive() != nil {
			return
		}
		if !k.engine.Folding()[0] {
			continue
		}
		if err := k.EraseDue(ctx); err != nil && ctx.Err() == nil {
			k.config.Log.Warn("cannot erase forgotten vehicles yet; will retry", "error", err)
		}
	}
}

// EraseDue also completes interrupted forgets. It chooses telemetry by sequence, because the clock
// may be set: the clock only decides when.
func (k *RecordStore) EraseDue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, eraseTimeout)
	defer cancel()
	now, was := k.config.Now(), k.firstSeen
	k.firstSeen = make(map[access.Tombstone]time.Time)
	var quiet, due []access.Tombstone
	cutOff := false
	for _, t := range k.forgotten.All() {
		switch {
		case !t.Removed:
			// The clock may have been set back since.
			cutOff = cutOff || now.Sub(t.Forgotten).Abs() >= forgetTimeout
		case !t.Erased.IsZero():
		case t.Quiet.IsZero():
			// A node may have accepted samples before it received the tombstone. They are stored
			// within 2*Patience.Store.
			met, ok := was[t]
			if !ok {
				met = now
			}
			if k.firstSeen[t] = met; now.Sub(met) >= 2*k.config.Patience.Store {
				quiet = append(quiet, t)
			}
		case now.Before(t.Quiet): // the clock was set back
			quiet = append(quiet, t)
		case k.isDue(t, now):
			due = append(due, t)
		}
	}
	if cutOff {
		if err := k.removeForgotten(ctx); err != nil {
			return err
		}
	}
	if err := k.noteQuiet(ctx, quiet, now); err != nil {
		return err
	}
	if len(due) == 0 || now.Sub(k.lastErased) < k.config.Patience.Markers {
		return nil
	}
	last := slices.MaxFunc(due, func(a, b access.Tombstone) int { return cmp.Compare(a.Last, b.Last) }).Last
	eraser, tells := k.engine.(Eraser)
	if tells {
		if gone, err := eraser.TrimTo(last); err != nil || !gone {
			return err
		}
	}
	k.lastErased = now
	// A node without the tombstone may have granted the vehicle meanwhile.
	_, _, err := k.dropGrants(ctx, k.forgotten.Without)
	if err == nil {
		_, err = k.AskOwners(ctx, AskErase)
	}
	if err == nil && tells {
		err = eraser.Erased(ctx)
	}
	if err != nil {
		return err
	}
	err = k.updateTombstones(ctx, due, func(t *access.Tombstone) { t.Erased = now.UTC().Truncate(time.Millisecond) })
	if err != nil {
		return err
	}
	k.config.Log.Info("erased forgotten vehicles", "vehicles", len(due), "took", k.config.Now().Sub(now).Round(time.Millisecond))
	return nil
}

func (k *RecordStore) isDue(t access.Tombstone, now time.Time) bool {
	return !t.Quiet.IsZero() && now.Sub(t.Quiet) >= k.keptFor()
}

// noteQuiet notes that no node stores telemetry of these vehicles any more, and where TELEMETRY
// ends.
func (k *RecordStore) noteQuiet(ctx context.Context, tombstones []access.Tombstone, at time.Time) error {
	if len(tombstones) == 0 {
		return nil
	}
	end, err := k.engine.End(ctx, codec.Telemetry)
	if err != nil {
		return err
	}
	return k.updateTombstones(ctx, tombstones, func(t *access.Tombstone) {
		if t.Quiet.IsZero() {
			t.Last = end.Last
		}
		t.Quiet = at.UTC().Truncate(time.Millisecond)
	})
}

// updateTombstones skips tombstones that are gone, or whose vehicle was forgotten once more.
func (k *RecordStore) updateTombstones(
	ctx context.Context, tombstones []access.Tombstone, change func(*access.Tombstone),
) error {
	for _, t := range tombstones {
		err := k.putTombstone(ctx, t.Vehicle, func(is *access.Tombstone) error {
			if is.Forgotten.Equal(t.Forgotten) {
				change(is)
			}
			return nil
		})
		if err != nil && !errors.Is(err, errNoTombstone) {
			return err
		}
	}
	return nil
}

func (k *RecordStore) Gone(id vehicle.ID) bool {
	t, ok := k.forgotten.Find(id)
	return ok && k.engine.Alive() == nil && k.isDue(t, k.config.Now())
}
