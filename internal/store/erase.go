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
	// eraseEvery is the interval at which Erase checks whether an erasure is due.
	eraseEvery = 10 * time.Second
	// forgetTimeout is the time after which a forget counts as interrupted if no record says that
	// it was completed.
	forgetTimeout = time.Minute
	// eraseTimeout limits the time of one erasure, which may rewrite tens of millions of states.
	eraseTimeout = 24 * time.Hour
)

// Erase calls EraseDue every ten seconds, until the context ends or the storage engine fails. Every
// derive node runs Erase, but only the owner of partition 0 erases, for all nodes. A former owner
// may also erase until it learns that it has lost the partition; this changes nothing, because
// every step of an erasure can be repeated. A node whose engine has failed must not erase, because
// its copy of the tombstones may be that of a stream that has been replaced.
func (k *RecordStore) Erase(ctx context.Context) {
	for range periodic.Every(ctx, eraseEvery) {
		if k.engine.Alive() != nil {
			return
		}
		if !k.engine.Folding()[0] {
			continue
		}
		if err := k.EraseDue(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("cannot erase forgotten vehicles yet; will retry", "error", err)
		}
	}
}

// EraseDue erases all forgotten vehicles whose erasure is due (see isDue), and completes forgets
// that were interrupted. Until Patience.Markers has passed since the last erasure by this process,
// it erases nothing and returns nil. It chooses the telemetry to remove by sequence, never by time,
// because the clock may be set back or ahead; the clock only decides when that telemetry is
// removed.
func (k *RecordStore) EraseDue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, eraseTimeout)
	defer cancel()
	now, was := k.now(), k.firstSeen
	k.firstSeen = make(map[access.Tombstone]time.Time)
	var quiet, due []access.Tombstone
	cutOff := false
	for _, t := range k.forgotten.All() {
		switch {
		case !t.Removed:
			// A tombstone with a future time was written before the clock was set back.
			cutOff = cutOff || now.Sub(t.Forgotten).Abs() >= forgetTimeout
		case !t.Erased.IsZero():
		case t.Quiet.IsZero():
			// A node may have accepted samples of the vehicle before it received the tombstone.
			// These samples are stored within 2*Patience.Store.
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
	if gone, err := k.engine.TrimTo(ctx, last); err != nil || !gone {
		return err
	}
	k.lastErased = now
	if err := k.erase(ctx); err != nil {
		return err
	}
	err := k.updateTombstones(ctx, due, func(t *access.Tombstone) { t.Erased = now.UTC().Truncate(time.Millisecond) })
	if err != nil {
		return err
	}
	k.log.Info("erased forgotten vehicles", "vehicles", len(due), "took", k.now().Sub(now).Round(time.Millisecond))
	return nil
}

// isDue reports whether now - t.Quiet is at least keptFor. If t.Quiet is zero, nodes may still be
// storing telemetry of the vehicle, and isDue returns false.
func (k *RecordStore) isDue(t access.Tombstone, now time.Time) bool {
	return !t.Quiet.IsZero() && now.Sub(t.Quiet) >= k.keptFor()
}

// noteQuiet records in the given tombstones that from now on no node stores telemetry of their
// vehicles: the present time, at, as Quiet, and the last sequence of telemetry as Last, unless an
// earlier call has recorded it.
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

// updateTombstones changes the given tombstones one by one, up to the first error, except those that
// no longer exist, or whose vehicle was forgotten once more.
func (k *RecordStore) updateTombstones(
	ctx context.Context, tombstones []access.Tombstone, change func(*access.Tombstone),
) error {
	for _, t := range tombstones {
		_, err := k.putTombstone(ctx, t.Vehicle, func(is *access.Tombstone) error {
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

// erase removes all data that still names forgotten vehicles from the streams, and then, if the
// storage engine can tell when bytes are gone, from the engine's files.
func (k *RecordStore) erase(ctx context.Context) error {
	// A node that had not received a tombstone yet may have granted the forgotten vehicle to a
	// token or source.
	if _, _, err := k.dropGrants(ctx, k.withoutForgotten); err != nil {
		return err
	}
	if _, err := k.askAll(ctx, AskErase); err != nil {
		return err
	}
	return k.engine.Erased(ctx)
}

// Gone reports whether the marker of a forgotten vehicle may be dropped, because no node needs it any
// more. The result is false if the vehicle's tombstone was lost with its stream, and if the storage
// engine has failed.
func (k *RecordStore) Gone(id vehicle.ID) bool {
	t, ok := k.forgotten.Find(id)
	return ok && k.engine.Alive() == nil && k.isDue(t, k.now())
}
