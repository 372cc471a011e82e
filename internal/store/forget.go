package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

type transition struct {
	from access.TombstoneState
	due  func(access.Tombstone) bool
	do   func(ctx context.Context, due []access.Tombstone) (done bool, err error)
	to   access.TombstoneState
}

// transitions returns the changes of tombstones that come with time; ends, of TELEMETRY, was read
// after now. Forget makes transitions to StateForgotten and StateRemoved, and Allow those to
// StateAllowed. DESIGN.md has the reasons.
func (k *RecordStore) transitions(now time.Time, ends []uint64) []transition {
	interrupted := func(t access.Tombstone) bool { return now.Sub(t.Since).Abs() >= forgetTimeout }
	settled := func(t access.Tombstone) bool {
		return !t.Seen.IsZero() && now.Sub(t.Seen).Abs() >= 2*k.config.Patience.Store
	}
	noteEnds := func(_ context.Context, due []access.Tombstone) (bool, error) {
		for i := range due {
			due[i].Ends = ends
		}
		return true, nil
	}
	reset := func(t access.Tombstone) bool { // clock set back, or stream replaced
		return now.Before(t.Since) || !slices.EqualFunc(ends, t.Ends, func(is, was uint64) bool { return is >= was })
	}
	old := func(t access.Tombstone) bool { return now.Sub(t.Since) >= k.keptFor() }
	rested := func(access.Tombstone) bool { return now.Sub(k.lastErased) >= k.config.Patience.Markers }
	return []transition{
		{access.StateForgotten, interrupted, k.removeForgotten, access.StateRemoved},
		{access.StateRemoved, settled, noteEnds, access.StateQuiet},
		{access.StateQuiet, reset, noteEnds, access.StateQuiet},
		{access.StateQuiet, old, k.trimTelemetry, access.StateTrimmed},
		{access.StateTrimmed, rested, k.eraseMarkers, access.StateErased},
	}
}

// keptFor is how long data that names a forgotten vehicle stays once no node stores more.
func (k *RecordStore) keptFor() time.Duration {
	return max(k.config.Retention, k.config.Patience.Markers)
}

// Erase does nothing unless this node owns partition 0. A former owner may erase, too, as every
// step can be repeated. A failed engine must not: its tombstones may be those of a replaced stream.
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

func (k *RecordStore) EraseDue(ctx context.Context) error {
	if len(k.tombstones(access.Tombstone.Covers)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eraseTimeout)
	defer cancel()
	now := k.config.Now()
	ends, err := k.engine.Ends(ctx, codec.Telemetry)
	if err != nil {
		return err
	}
	for _, x := range k.transitions(now, ends) {
		due := k.tombstones(func(t access.Tombstone) bool { return t.State == x.from && x.due(t) })
		if err := k.pass(ctx, x, due); err != nil {
			return err
		}
	}
	return nil
}

func (k *RecordStore) tombstones(which func(access.Tombstone) bool) []access.Tombstone {
	return slices.DeleteFunc(k.forgotten.All(), func(t access.Tombstone) bool { return !which(t) })
}

// pass makes a transition of due tombstones, except those that have changed meanwhile.
func (k *RecordStore) pass(ctx context.Context, x transition, due []access.Tombstone) error {
	if len(due) == 0 {
		return nil
	}
	if done, err := x.do(ctx, due); err != nil || !done {
		return err
	}
	for _, t := range due {
		if _, err := k.changeTombstone(ctx, t.Vehicle, func(is *access.Tombstone) bool {
			if !is.Forgotten.Equal(t.Forgotten) || is.State != t.State {
				return false
			}
			is.State, is.Since, is.Ends = x.to, k.now(), t.Ends
			return true
		}); err != nil {
			return err
		}
	}
	return nil
}

func (k *RecordStore) now() time.Time { return k.config.Now().UTC().Truncate(time.Millisecond) }

// removeForgotten drops all forgotten vehicles, because tombstones have only hashes.
func (k *RecordStore) removeForgotten(ctx context.Context, _ []access.Tombstone) (bool, error) {
	if _, err := k.AskOwners(ctx, AskDropAll); err != nil {
		return false, err
	}
	_, _, err := k.dropGrants(ctx, k.forgotten.Without)
	return err == nil, err
}

func (k *RecordStore) trimTelemetry(ctx context.Context, due []access.Tombstone) (bool, error) {
	last := slices.Clone(due[0].Ends)
	for _, t := range due {
		for i := range last {
			last[i] = max(last[i], t.Ends[i])
		}
	}
	return k.engine.TrimTo(ctx, last)
}

func (k *RecordStore) eraseMarkers(ctx context.Context, due []access.Tombstone) (bool, error) {
	k.lastErased = k.config.Now()
	// A node without the tombstone may have granted the vehicle meanwhile.
	_, _, err := k.dropGrants(ctx, k.forgotten.Without)
	if err == nil {
		_, err = k.AskOwners(ctx, AskErase)
	}
	if eraser, tells := k.engine.(Eraser); tells && err == nil {
		err = eraser.Erased(ctx)
	}
	if err == nil {
		k.config.Log.Info("erased forgotten vehicles", "vehicles", len(due), "took", k.config.Now().Sub(k.lastErased))
	}
	return err == nil, err
}

// [codec.IsNewer] is true for the error of Covers if a newer version wrote the tombstone.
func (k *RecordStore) Covers(id vehicle.ID) (bool, error) {
	t, ok := k.forgotten.Find(id)
	if ok && t.Unread {
		return false, fmt.Errorf("%w: a tombstone", codec.ErrNewer)
	}
	return ok && t.Covers(), nil
}

func (k *RecordStore) Gone(id vehicle.ID) bool {
	t, ok := k.forgotten.Find(id)
	return ok && t.State >= access.StateTrimmed && !t.Unread && k.engine.Alive() == nil
}

// If Forget fails after storing the tombstone, EraseDue completes it.
func (k *RecordStore) Forget(ctx context.Context, id vehicle.ID) (r access.ForgetReceipt, err error) {
	hash, now := k.forgotten.Hash(id), k.now()
	within, tells, err := k.erasedWithin()
	if err != nil {
		return r, err
	}
	t, err := k.changeTombstone(ctx, hash, func(is *access.Tombstone) bool {
		// A second forget does not delay the erasure.
		if !is.Forgotten.IsZero() && is.State < access.StateTrimmed {
			return false
		}
		*is = access.Tombstone{Vehicle: hash, Forgotten: now, Since: now}
		return true
	})
	if err != nil {
		return r, err
	}
	removed, err := k.remove(ctx, id)
	if err != nil {
		return r, err
	}
	// The earlier forget had removed all, so something was stored since.
	stored := removed != (access.RemovedCount{}) && !t.Forgotten.Equal(now)
	t, err = k.changeTombstone(ctx, hash, func(is *access.Tombstone) bool {
		switch {
		case !is.Forgotten.Equal(t.Forgotten):
			return false // forgotten once more
		case stored || is.State >= access.StateTrimmed: // this marker comes too late for the erasure
			*is = access.Tombstone{Vehicle: hash, Forgotten: now, Since: now}
		case is.State == access.StateForgotten:
			is.State, is.Since = access.StateRemoved, k.now()
		default:
			return false
		}
		return true
	})
	if err == nil && t.Forgotten.IsZero() {
		err = errNoTombstone
	}
	r = receipt(t)
	r.Removed = removed
	if tells {
		r.ErasedBy = new(t.Forgotten.Add(within))
	}
	return r, err
}

var errNoTombstone = errors.New("the tombstone was lost, because its stream was re-created: forget the vehicle again")

// within is from the forget to the erasure. If tells, the bytes are gone then, too.
func (k *RecordStore) erasedWithin() (within time.Duration, tells bool, err error) {
	eraser, tells := k.engine.(Eraser)
	if tells {
		within, err = eraser.ErasedWithin()
	}
	return within + k.keptFor() + k.config.Patience.Markers + 5*time.Minute, tells, err
}

// Allow lets a vehicle report again, as one without earlier data. The error is [access.ErrNotFound]
// if it is not forgotten, and [access.ErrNotErased] before it is erased.
func (k *RecordStore) Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	if !k.forgotten.Has(id) {
		return access.ForgetReceipt{}, access.ErrNotFound
	}
	// An owner with a tombstone in force could drop a sample that another node has acknowledged.
	ask := func(ctx context.Context, _ []access.Tombstone) (bool, error) {
		_, err := k.AskOwner(ctx, codec.PartitionOf(id, k.engine.Partitions()), &Question{Kind: AskTombstones})
		return err == nil, err
	}
	for {
		t, ok := k.forgotten.Find(id) // under any of the tombstone keys
		if !ok || !t.InForce() {
			return receipt(t), nil
		}
		if t.State != access.StateErased {
			within, _, err := k.erasedWithin()
			after, soon := t.Forgotten.Add(within), k.now().Add(k.config.Patience.Markers)
			if after.Before(soon) { // the service was stopped meanwhile
				after = soon
			}
			return access.ForgetReceipt{}, cmp.Or(err, fmt.Errorf("%w: try again after %s", access.ErrNotErased,
				after.UTC().Format("2006-01-02 15:04Z")))
		}
		if err := k.pass(ctx, transition{do: ask, to: access.StateAllowed}, []access.Tombstone{t}); err != nil {
			return access.ForgetReceipt{}, err
		}
	}
}

func receipt(t access.Tombstone) access.ForgetReceipt {
	r := access.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: t.Vehicle.String(), ForgottenAt: t.Forgotten}
	if t.State == access.StateAllowed {
		r.AllowedAt = &t.Since
	}
	return r
}

func (k *RecordStore) remove(ctx context.Context, id vehicle.ID) (n access.RemovedCount, err error) {
	r, err := k.AskOwner(ctx, codec.PartitionOf(id, k.engine.Partitions()), &Question{Kind: AskDrop, Vehicle: id})
	if err != nil {
		return n, err
	}
	if r.Had {
		n.States = 1
	}
	n.TokenGrants, n.SourceGrants, err = k.dropGrants(ctx, func(v access.Vehicles) (access.Vehicles, bool) {
		if v.All() || !v.Include(id) {
			return v, false
		}
		return v.Without(id), true
	})
	return n, err
}

// dropGrants also changes revoked and removed credentials. without returns what remains of a grant,
// and whether it removed any.
func (k *RecordStore) dropGrants(
	ctx context.Context, without func(access.Vehicles) (access.Vehicles, bool),
) (tokens, sources int, err error) {
	if k.tables.Unread() {
		return 0, 0, errNewerCredential
	}
	for _, g := range slices.Concat(k.tables.Tokens.All(), k.tables.Sources.All()) {
		if _, ok := without(g.Vehicles); !ok {
			continue
		}
		if _, err := k.update(ctx, subjectOf(g.Kind, g.Name), func(c *access.Credential) error {
			c.Vehicles, _ = without(c.Vehicles)
			return nil
		}); err != nil {
			return tokens, sources, err
		}
		if g.Kind == access.SourceKind {
			sources++
		} else {
			tokens++
		}
	}
	return tokens, sources, nil
}
