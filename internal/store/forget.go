package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/workers"
	"example.org/carstate/internal/vehicle"
)

type tombstoneRecord struct {
	Vehicle []byte `json:"vehicle"`
	access.Tombstone
}

type vidKeysRecord struct {
	Keys [][]byte `json:"keys"`
}

const (
	vidKeyBytes = 32
	maxVIDKeys  = 16
)

var errVIDKeys = fmt.Errorf("at most %d installations can have tombstone keys here", maxVIDKeys)

// LoadVIDKeys passes to f this installation's own key, which it creates if there is none, and those
// of restored backups.
func LoadVIDKeys(ctx context.Context, r Records, f *access.Forgotten) error {
	key := make([]byte, vidKeyBytes)
	rand.Read(key)
	keys := vidKeysRecord{Keys: [][]byte{key}}
	_, err := Change(ctx, r, defaultStore, codec.Sources, codec.VIDKeysSubject, func(is Record) (_ []Write, err error) {
		if is.Seq == 0 {
			return AppendJSON(nil, codec.VIDKeysSubject, keys)
		}
		keys, err = decodeVIDKeys(is.Body)
		return nil, err
	})
	if err != nil {
		return fmt.Errorf("cannot load the tombstone key: %w", err)
	}
	f.SetKeys(keys.Keys...)
	return nil
}

func LoadForgotten(ctx context.Context, r Records, f *access.Forgotten) error {
	if err := LoadVIDKeys(ctx, r, f); err != nil {
		return err
	}
	return r.Scan(ctx, codec.Sources, []string{"tombstone.*"}, func(rec Record) error {
		t, err := decodeTombstone(rec.Subject, rec.Body)
		if err == nil {
			f.Put(t)
		}
		return err
	})
}

func decodeVIDKeys(body []byte) (r vidKeysRecord, err error) {
	ok := json.Unmarshal(body, &r) == nil && len(r.Keys) > 0
	for _, k := range r.Keys {
		ok = ok && len(k) == vidKeyBytes
	}
	if !ok {
		return r, fmt.Errorf("%w: the tombstone key", codec.ErrDamaged)
	}
	_, err = withKeys(r.Keys, nil)
	return r, err
}

func withKeys(ours, theirs [][]byte) ([][]byte, error) {
	for _, key := range theirs {
		if !slices.ContainsFunc(ours, func(our []byte) bool { return bytes.Equal(our, key) }) {
			ours = append(ours, key)
		}
	}
	if len(ours) > maxVIDKeys {
		return ours, Unfit{codec.VIDKeysSubject, errVIDKeys}
	}
	return ours, nil
}

// The error is [Unfit] if there were too many keys with those of a backup.
func (k *RecordStore) CheckVIDKeys(ctx context.Context, backup *Checker) error {
	is, err := k.engine.Last(ctx, codec.Sources, codec.VIDKeysSubject)
	if err != nil {
		return err
	}
	ours, err := decodeVIDKeys(is.Body)
	if err == nil {
		_, err = withKeys(ours.Keys, backup.vidKeys)
	}
	return err
}

// A hash cannot be converted to another key, so each vid is looked up with every key.
func (k *RecordStore) MergeVIDKeys(ctx context.Context, r Record) (added bool, err error) {
	theirs, err := decodeVIDKeys(r.Body)
	if err != nil {
		return false, err
	}
	err = k.change(ctx, codec.Sources, codec.VIDKeysSubject, func(is Record) ([]Write, error) {
		ours, err := decodeVIDKeys(is.Body)
		if err != nil {
			return nil, err
		}
		n := len(ours.Keys)
		ours.Keys, err = withKeys(ours.Keys, theirs.Keys)
		switch added = len(ours.Keys) > n; {
		case err != nil:
			return nil, errVIDKeys
		case !added:
			return nil, nil
		}
		return AppendJSON(nil, codec.VIDKeysSubject, ours)
	})
	return added, err
}

func decodeTombstone(subject string, body []byte) (access.Tombstone, error) {
	var r tombstoneRecord
	if json.Unmarshal(body, &r) != nil || len(r.Vehicle) != len(access.VehicleHash{}) ||
		codec.TombstoneSubject(access.VehicleHash(r.Vehicle)) != subject {
		return access.Tombstone{}, fmt.Errorf("%w: a tombstone", codec.ErrDamaged)
	}
	if r.Forgotten.IsZero() {
		return access.Tombstone{}, Unfit{"tombstone", errors.New("the time of forgetting is missing")}
	}
	r.Tombstone.Vehicle = access.VehicleHash(r.Vehicle)
	return r.Tombstone, nil
}

// The receipt says from when no byte on the disk names the vehicle, if the engine can tell. If
// Forget fails after the tombstone, EraseDue completes it.
func (k *RecordStore) Forget(ctx context.Context, id vehicle.ID) (r access.ForgetReceipt, err error) {
	hash := k.forgotten.Hash(id)
	eraser, tells := k.engine.(Eraser)
	var work time.Duration
	if tells {
		if work, err = eraser.ErasedWithin(); err != nil {
			return r, err
		}
	}
	now := k.config.Now().UTC().Truncate(time.Millisecond)
	var t access.Tombstone
	put := func(renew bool) error {
		return k.putTombstone(ctx, hash, func(is *access.Tombstone) error {
			// A second forget does not delay the erasure.
			if renew || is.Forgotten.IsZero() || !is.Removed || !is.Lifted.IsZero() || !is.Erased.IsZero() {
				*is = access.Tombstone{Vehicle: hash, Forgotten: now}
			}
			t = *is
			return nil
		})
	}
	if err := put(false); err != nil {
		return r, err
	}
	removed, err := k.remove(ctx, id)
	if err != nil {
		return r, err
	}
	if removed != (access.RemovedCount{}) && !t.Forgotten.Equal(now) {
		// Data was stored again after an earlier forget, and must be erased, too.
		if err := put(true); err != nil {
			return r, err
		}
	}
	r = receipt(t)
	r.Removed = removed
	if tells {
		by := t.Forgotten.Add(k.keptFor() + k.config.Patience.Markers + 5*time.Minute + work)
		r.ErasedBy = &by
	}
	return r, k.noteRemoved(ctx, t)
}

// keptFor is how long data that names a forgotten vehicle stays once no node stores more.
func (k *RecordStore) keptFor() time.Duration {
	return max(k.config.Retention, k.config.Patience.Markers)
}

// noteRemoved does nothing if the vehicle was forgotten once more.
func (k *RecordStore) noteRemoved(ctx context.Context, t access.Tombstone) error {
	return k.putTombstone(ctx, t.Vehicle, func(is *access.Tombstone) error {
		is.Removed = is.Removed || is.Forgotten.Equal(t.Forgotten)
		return nil
	})
}

// The vehicle has no earlier data. The error is [access.ErrNotFound] if it is not forgotten.
func (k *RecordStore) Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	if !k.forgotten.Has(id) {
		return access.ForgetReceipt{}, access.ErrNotFound
	}
	for {
		t, ok := k.forgotten.Find(id) // by any of the keys
		if !ok || t.Opened {
			return receipt(t), nil
		}
		if err := k.lift(ctx, id, t.Vehicle); err != nil {
			return access.ForgetReceipt{}, err
		}
	}
}

// lift makes all nodes fold new samples of the vehicle, and then ingest accept them. In one step, a
// node without the change could drop a sample that another has acknowledged.
func (k *RecordStore) lift(ctx context.Context, id vehicle.ID, hash access.VehicleHash) error {
	stream, p := codec.Telemetry, codec.PartitionOf(id, k.engine.Partitions())
	if e, ok := k.engine.(interface{ TelemetryStream(p int) string }); ok {
		stream = e.TelemetryStream(p)
	}
	end, err := k.engine.End(ctx, stream)
	if err != nil {
		return err
	}
	err = k.putTombstone(ctx, hash, func(t *access.Tombstone) error {
		t.Lifted = k.config.Now().UTC().Truncate(time.Millisecond)
		t.Stale, t.Made = end.Last, end.Made
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := k.AskOwner(ctx, p, &Question{Kind: AskTombstones}); err != nil {
		return err
	}
	return k.putTombstone(ctx, hash, func(t *access.Tombstone) error {
		t.Opened = true
		return nil
	})
}

var errNoTombstone = errors.New("the tombstone was lost, because its stream was re-created: forget the vehicle again")

// putTombstone waits until this node's table has the tombstone. If there is none and Forgotten
// stays zero, the error is errNoTombstone.
func (k *RecordStore) putTombstone(
	ctx context.Context, hash access.VehicleHash, change func(*access.Tombstone) error,
) error {
	subject := codec.TombstoneSubject(hash)
	return k.change(ctx, codec.Sources, subject, func(is Record) (_ []Write, err error) {
		t := access.Tombstone{Vehicle: hash}
		if is.Seq != 0 {
			if t, err = decodeTombstone(subject, is.Body); err != nil {
				return nil, err
			}
		}
		if err := change(&t); err != nil {
			return nil, err
		}
		if is.Seq == 0 && t.Forgotten.IsZero() {
			return nil, errNoTombstone
		}
		return AppendJSON(nil, subject, tombstoneRecord{hash[:], t})
	})
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
		return v.Without(id)
	})
	return n, err
}

const (
	askPause   = 100 * time.Millisecond
	askWriters = 2 // folding needs most of a node's
)

// While a partition has no owner, as during a takeover, AskOwner retries for Patience.Store. The
// reply of an owner that stores a checkpoint first may take longer.
func (k *RecordStore) AskOwner(ctx context.Context, p int, q *Question) (r Reply, err error) {
	for began := time.Now(); ; {
		r, err = k.engine.Ask(ctx, p, q)
		if !errors.Is(err, ErrNoOwner) || time.Since(began) > k.config.Patience.Store || periodic.Pause(ctx, askPause) != nil {
			return r, err
		}
	}
}

func (k *RecordStore) AskOwners(ctx context.Context, kind string) ([]Reply, error) {
	replies := make([]Reply, k.engine.Partitions())
	ctx, asking := workers.New(ctx, askWriters)
	var err error
	for p := range replies {
		err = cmp.Or(err, asking.Start(func() (err error) {
			replies[p], err = k.AskOwner(ctx, p, &Question{Kind: kind})
			return err
		}))
	}
	return replies, cmp.Or(err, asking.Wait())
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

var errKnownTombstone = errors.New("the vehicle's tombstone is known")

func (k *RecordStore) MergeTombstone(ctx context.Context, r Record) (buried bool, err error) {
	t, err := decodeTombstone(r.Subject, r.Body)
	if err != nil || !t.InForce() {
		return false, err
	}
	return k.bury(ctx, t.Vehicle, t.Forgotten)
}

// bury does nothing if the vehicle is forgotten already, or was allowed again since.
func (k *RecordStore) bury(ctx context.Context, hash access.VehicleHash, at time.Time) (buried bool, err error) {
	err = k.putTombstone(ctx, hash, func(t *access.Tombstone) error {
		if !t.Forgotten.IsZero() && (t.InForce() || !at.After(t.Lifted)) {
			return errKnownTombstone
		}
		*t = access.Tombstone{Vehicle: hash, Forgotten: at}
		return nil
	})
	if errors.Is(err, errKnownTombstone) {
		return false, nil
	}
	return err == nil, err
}

// Bury forgets vehicles again by receipts that operators have kept, as after a restore from an
// older backup, unless they were allowed since. After an error, those of the receipts before are
// forgotten.
func (k *RecordStore) Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error) {
	for _, r := range receipts {
		hash, err := access.ParseVehicleHash(r.Vehicle)
		if err != nil {
			return buried, err
		}
		if r.AllowedAt != nil {
			continue
		}
		did, err := k.bury(ctx, hash, r.ForgottenAt)
		if err != nil {
			return buried, err
		}
		if did {
			buried++
		}
	}
	if buried == 0 {
		return 0, nil
	}
	return buried, k.removeForgotten(ctx)
}

// removeForgotten knows only hashes of vehicles. After an error, EraseDue calls it again.
func (k *RecordStore) removeForgotten(ctx context.Context) error {
	before := k.forgotten.All()
	_, err := k.AskOwners(ctx, AskDropAll)
	if err != nil {
		return err
	}
	if _, _, err = k.dropGrants(ctx, k.forgotten.Without); err != nil {
		return err
	}
	for _, t := range before {
		if !t.Removed {
			if err := k.noteRemoved(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func receipt(t access.Tombstone) access.ForgetReceipt {
	r := access.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: t.Vehicle.String(), ForgottenAt: t.Forgotten}
	if !t.Lifted.IsZero() {
		r.AllowedAt = &t.Lifted
	}
	return r
}
