package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Forgetting a vehicle is a record, never a purge: every node must come to know
// of it from a feed. What names the vehicle goes in this order:
//
//  1. A tombstone under the vehicle's keyed hash, in SOURCES. From then on
//     ingest refuses the vehicle, and samples that are stored count for nothing.
//  2. The partition's cursor, which notes the tombstone: a fold that is under way
//     fails on its revision, and nobody takes the partition without having seen
//     the tombstone. Nothing can write the vehicle's state any more.
//  3. A marker in place of the state, by which every node's table drops it.
//  4. The grants of tokens and sources.
//
// Erase (erase.go) later removes the marker and, in an embedded engine's files, what is
// left of the bytes.

// tombstoneRecord is a tombstone as it is stored, beside the hash in its subject.
type tombstoneRecord struct {
	Vehicle   []byte    `json:"vehicle"`
	Forgotten time.Time `json:"forgotten"`
	Lifted    time.Time `json:"lifted,omitzero"`
	Opened    bool      `json:"opened,omitempty"`
	Removed   bool      `json:"removed,omitempty"`
	Padded    uint64    `json:"padded,omitempty"`
	Erased    time.Time `json:"erased,omitzero"`
	Stale     uint64    `json:"stale,omitempty"`
	Made      int64     `json:"made,omitempty"`
}

// vidKeysRecord holds the keys under which vids are hashed, our own first.
type vidKeysRecord struct {
	Keys [][]byte `json:"keys"`
}

const vidKeyBytes = 32

// loadVIDKeys reads the keys of this installation; the first node to start makes
// them.
func (e *Engine) loadVIDKeys(ctx context.Context) error {
	err := patiently(ctx, e.loadVIDKeysOnce)
	if unled(err) && !e.config.embedded() && ctx.Err() == nil {
		return errUnled
	}
	return err
}

func (e *Engine) loadVIDKeysOnce(ctx context.Context) error {
	key := make([]byte, vidKeyBytes)
	rand.Read(key)
	keys := vidKeysRecord{Keys: [][]byte{key}}
	_, err := e.changeRecord(ctx, Sources, codec.VIDKeysSubject, func(is record) (_ []write, err error) {
		if is.seq == 0 {
			return appendJSON(nil, codec.VIDKeysSubject, keys)
		}
		keys, err = decodeVIDKeys(is.body)
		return nil, err
	})
	if err != nil {
		return fmt.Errorf("the key of tombstones cannot be had: %w", err)
	}
	e.forgotten.SetKeys(keys.Keys...)
	return nil
}

func (e *Engine) setVIDKeys(body []byte) error {
	r, err := decodeVIDKeys(body)
	if err != nil {
		return err
	}
	e.forgotten.SetKeys(r.Keys...)
	return nil
}

func decodeVIDKeys(body []byte) (r vidKeysRecord, err error) {
	ok := json.Unmarshal(body, &r) == nil && len(r.Keys) > 0
	for _, k := range r.Keys {
		ok = ok && len(k) == vidKeyBytes
	}
	if !ok {
		return r, fmt.Errorf("%w: the key of tombstones", codec.ErrDamaged)
	}
	return r, nil
}

func decodeTombstone(body []byte) (access.Tombstone, error) {
	var r tombstoneRecord
	if json.Unmarshal(body, &r) != nil || len(r.Vehicle) != len(access.VehicleHash{}) {
		return access.Tombstone{}, fmt.Errorf("%w: a tombstone", codec.ErrDamaged)
	}
	return access.Tombstone{
		Vehicle: access.VehicleHash(r.Vehicle), Forgotten: r.Forgotten, Lifted: r.Lifted, Opened: r.Opened, Removed: r.Removed, Padded: r.Padded, Erased: r.Erased, Stale: r.Stale, Made: r.Made,
	}, nil
}

// Forgotten is this node's copy of the tombstones, which a [Keeper] feeds.
func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

// Forget erases a vehicle and keeps it from coming back. When it returns nil,
// this node knows nothing of the vehicle any more; other nodes follow within
// their feeds' latency.
func (k *Keeper) Forget(ctx context.Context, id vehicle.ID) (r access.ForgetReceipt, err error) {
	hash := k.e.forgotten.Hash(id)
	var within time.Duration
	if k.e.config.embedded() {
		if within, err = k.e.erasedWithin(ctx); err != nil {
			return r, err
		}
	}
	now := k.e.now().UTC().Truncate(time.Millisecond)
	var t access.Tombstone
	put := func(again func(access.Tombstone) bool) (seq uint64, err error) {
		return k.putTombstone(ctx, hash, func(is access.Tombstone) (access.Tombstone, error) {
			if t = is; !again(is) {
				t = access.Tombstone{Vehicle: hash, Forgotten: now}
			}
			return t, nil
		})
	}
	// A second forget does not put the erasure off.
	seq, err := put(func(is access.Tombstone) bool {
		return !is.Forgotten.IsZero() && is.Removed && is.Lifted.IsZero() && is.Erased.IsZero()
	})
	if err != nil {
		return r, err
	}
	removed, err := k.remove(ctx, id, seq)
	if err != nil {
		return r, err
	}
	if removed != (access.RemovedCount{}) && !t.Forgotten.Equal(now) {
		// Some of it had come back, and is to be erased as well.
		if _, err := put(func(access.Tombstone) bool { return false }); err != nil {
			return r, err
		}
	}
	r = receipt(t, removed)
	if k.e.config.embedded() {
		by := t.Forgotten.Add(within)
		r.ErasedBy = &by
	}
	return r, k.noteRemoved(ctx, t)
}

// noteRemoved notes that all is taken away that a tombstone forbids. A forget that
// was cut off before is finished by the erasure.
func (k *Keeper) noteRemoved(ctx context.Context, t access.Tombstone) error {
	_, err := k.putTombstone(ctx, t.Vehicle, func(is access.Tombstone) (access.Tombstone, error) {
		is.Removed = is.Removed || is.Forgotten.Equal(t.Forgotten)
		return is, nil
	})
	return err
}

// Allow lifts the tombstone of a vehicle, which starts without a past. It is
// [access.ErrNotFound] if the vehicle is not forgotten.
func (k *Keeper) Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	if !k.e.forgotten.Has(id) {
		return access.ForgetReceipt{}, access.ErrNotFound
	}
	for {
		t, ok := k.e.forgotten.Find(id) // under any key
		if !ok || t.Opened {
			return receipt(t, access.RemovedCount{}), nil
		}
		if err := k.lift(ctx, id, t.Vehicle); err != nil {
			return access.ForgetReceipt{}, err
		}
	}
}

// lift opens the way in two steps, so that no node still drops what another one
// has begun to acknowledge.
func (k *Keeper) lift(ctx context.Context, id vehicle.ID, hash access.VehicleHash) error {
	s, err := k.e.js.Stream(ctx, Telemetry)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	seq, err := k.putTombstone(ctx, hash, func(t access.Tombstone) (access.Tombstone, error) {
		t.Lifted = k.e.now().UTC().Truncate(time.Millisecond)
		t.Stale, t.Made = info.State.LastSeq, info.Created.UnixNano()
		return t, nil
	})
	if err != nil {
		return err
	}
	if err := k.e.fence(ctx, codec.PartitionOf(id, k.e.partitions), seq); err != nil {
		return err
	}
	_, err = k.putTombstone(ctx, hash, func(t access.Tombstone) (access.Tombstone, error) {
		t.Opened = true
		return t, nil
	})
	return err
}

// errNoTombstone means that there is no tombstone to be changed: it went with its
// stream.
var errNoTombstone = errors.New("the tombstone is gone: the stream that held it was made anew, so forget the vehicle once more")

// putTombstone replaces a tombstone, the zero one if there is none, and returns
// its place in SOURCES once this node's table holds it.
func (k *Keeper) putTombstone(ctx context.Context, hash access.VehicleHash, change func(access.Tombstone) (access.Tombstone, error)) (uint64, error) {
	subject := codec.TombstoneSubject(hash)
	return k.change(ctx, k.srcFeed, subject, func(is record) (_ []write, err error) {
		t := access.Tombstone{Vehicle: hash}
		if is.seq != 0 {
			if t, err = decodeTombstone(is.body); err != nil {
				return nil, err
			}
		}
		if t, err = change(t); err != nil {
			return nil, err
		}
		if is.seq == 0 && t.Forgotten.IsZero() {
			return nil, errNoTombstone
		}
		return appendJSON(nil, subject, tombstoneRecord{
			Vehicle: hash[:], Forgotten: t.Forgotten, Lifted: t.Lifted, Opened: t.Opened, Removed: t.Removed, Padded: t.Padded, Erased: t.Erased, Stale: t.Stale, Made: t.Made,
		})
	})
}

// remove takes away all that the tombstone stored at seq forbids.
func (k *Keeper) remove(ctx context.Context, id vehicle.ID, seq uint64) (n access.RemovedCount, err error) {
	p := codec.PartitionOf(id, k.e.partitions)
	if err := k.e.fence(ctx, p, seq); err != nil {
		return n, err
	}
	if n.States, err = k.e.mark(ctx, p, id); err != nil {
		return n, err
	}
	n.TokenGrants, n.SourceGrants, err = k.dropGrants(ctx, func(v access.Vehicles) (access.Vehicles, bool) {
		if v.All() || !v.Include(id) {
			return v, false
		}
		return v.Without(id)
	})
	return n, err
}

// fence notes in a partition's cursor that nobody may fold it without having
// seen the tombstone at seq. A fold under way fails on the cursor's revision.
func (e *Engine) fence(ctx context.Context, p int, seq uint64) error {
	s, err := e.js.Stream(ctx, Sources)
	if err != nil {
		return err
	}
	made := s.CachedInfo().Created.UnixNano()
	_, err = e.changeRecord(ctx, States, codec.CursorSubject(p), func(is record) ([]write, error) {
		c, err := decodeCursor(is, p)
		if err != nil {
			return nil, err
		}
		// Fences grows, so that nobody takes the record for one of their own.
		c.Fences++
		if c.ForgottenIn != 0 && c.ForgottenIn != made {
			c.Forgotten = 0 // it counts in a SOURCES that is no more
		}
		c.Forgotten, c.ForgottenIn = max(c.Forgotten, seq), made
		t := Partition{e: e, number: p, cursor: c}
		return []write{t.cursorWrite(is.seq)}, nil
	})
	return err
}

// mark replaces the state of a vehicle, which nobody writes any more, and returns
// once this node's feed has passed that. Where none is stored, a table may still
// have what a full stream has dropped, and a restore may be about to store one.
func (e *Engine) mark(ctx context.Context, p int, id vehicle.ID) (replaced int, err error) {
	subject := codec.StateSubject(p, id)
	// A conflict is the same state, which an erasure has stored again.
	seq, err := e.changeRecord(ctx, States, subject, func(is record) ([]write, error) {
		if replaced = 0; is.seq != 0 {
			if codec.IsMarker(is.body) {
				return nil, nil
			}
			replaced = 1
		}
		return []write{{subject: subject, record: codec.SealMarker(subject)}}, nil
	})
	if err != nil {
		return 0, err
	}
	if f := e.followed.Load(); f != nil {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err = f.wait(ctx, seq)
	}
	return replaced, err
}

// dropGrants changes the vehicles of every token and source for which without
// returns true, removed ones included, and counts them.
func (k *Keeper) dropGrants(ctx context.Context, without func(access.Vehicles) (access.Vehicles, bool)) (tokens, sources int, err error) {
	drop := func(all []*access.Grant) (n int, err error) {
		for _, g := range all {
			if _, ok := without(g.Vehicles); !ok {
				continue
			}
			if _, err := k.update(ctx, subjectOf(g.Kind, g.Name), func(c *access.Credential) error {
				c.Vehicles, _ = without(c.Vehicles)
				return nil
			}); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if tokens, err = drop(k.tables.Tokens.All()); err == nil {
		sources, err = drop(k.tables.Sources.All())
	}
	return tokens, sources, err
}

// receipt tells what became of a vehicle.
func receipt(t access.Tombstone, removed access.RemovedCount) access.ForgetReceipt {
	r := access.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: t.Vehicle.String(), ForgottenAt: t.Forgotten, Removed: removed}
	if !t.Lifted.IsZero() {
		r.AllowedAt = &t.Lifted
	}
	return r
}

// awaitTombstone waits until this node has seen the tombstone at seq of the SOURCES
// that was made at a time; 0: of the present one. What went with another SOURCES,
// or with the end of this one, is not waited for: it will never come.
func (e *Engine) awaitTombstone(ctx context.Context, seq uint64, made int64) error {
	if err := e.Alive(); err != nil {
		return err // the tables are of streams that are no more
	}
	f := e.stones.Load()
	if f == nil || seq == 0 {
		return nil // without a keeper, nobody on this node forgets
	}
	s, err := e.js.Stream(ctx, Sources)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	if made != 0 && made != info.Created.UnixNano() {
		return nil
	}
	if err := f.wait(ctx, min(seq, info.State.LastSeq)); err != nil {
		return err
	}
	if read := f.readFrom(); !read.Equal(info.Created) {
		return fmt.Errorf("%w: this node's tombstones are of another %s", ErrReplaced, Sources)
	}
	return nil
}

// awaitTombstones waits until this node has seen every tombstone there is.
func (e *Engine) awaitTombstones(ctx context.Context) error {
	s, err := e.js.Stream(ctx, Sources)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.awaitTombstone(ctx, s.CachedInfo().State.LastSeq, 0)
}

// recall sees whether a record is the cursor of a partition in which a vehicle
// was forgotten since this node took it. Its states at hand are then dropped.
func (e *Engine) recall(r record) {
	p, ok := codec.PartitionOfCursor(r.subject)
	if !ok {
		return
	}
	taken, ok := e.taken.Load(p)
	if !ok {
		return
	}
	var c cursor
	if t := taken.(*Partition); json.Unmarshal(r.body, &c) == nil && c.Fences != t.fences {
		t.recall()
	}
}
