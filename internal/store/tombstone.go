package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

type tombstoneRecord struct {
	access.Tombstone
	// Earlier builds stored no State: unless Opened, the vehicle is erased once more.
	Opened bool      `json:"opened,omitzero"`
	Lifted time.Time `json:"lifted,omitzero"`
}

type vidKeysRecord struct {
	Keys [][]byte `json:"keys"`
}

const (
	vidKeyBytes = 32
	maxVIDKeys  = 16
)

// LoadVIDKeys passes to f the tombstone keys: this installation's own, created if there is none,
// and those of restored backups.
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
	wrong := func(key []byte) bool { return len(key) != vidKeyBytes }
	if json.Unmarshal(body, &r) != nil || len(r.Keys) == 0 || slices.ContainsFunc(r.Keys, wrong) {
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
		return ours, Unfit{codec.VIDKeysSubject, fmt.Errorf("at most %d installations can have tombstone keys here", maxVIDKeys)}
	}
	return ours, nil
}

// mergeVIDKeys adds the keys of a backup: hashes cannot be converted, so each vid is looked up with
// every key. The error is [Unfit] if there were too many.
func (k *RecordStore) mergeVIDKeys(ctx context.Context, r Record, dry bool) (added bool, err error) {
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
		if added = len(ours.Keys) > n; err != nil || !added || dry {
			return nil, err
		}
		return AppendJSON(nil, codec.VIDKeysSubject, ours)
	})
	return added, err
}

func decodeTombstone(subject string, body []byte) (access.Tombstone, error) {
	var r tombstoneRecord
	if json.Unmarshal(body, &r) != nil || codec.TombstoneSubject(r.Vehicle) != subject {
		return access.Tombstone{}, fmt.Errorf("%w: a tombstone", codec.ErrDamaged)
	}
	if r.Forgotten.IsZero() || r.State > access.StateAllowed {
		return access.Tombstone{}, Unfit{"tombstone", errors.New("the time of forgetting is missing, or the state is unknown")}
	}
	if r.Opened {
		r.State, r.Since = access.StateAllowed, r.Lifted
	}
	return r.Tombstone, nil
}

// If there was no tombstone, change gets a zero Forgotten; if it returns false, nothing is stored.
func (k *RecordStore) changeTombstone(
	ctx context.Context, hash access.VehicleHash, change func(*access.Tombstone) bool,
) (t access.Tombstone, err error) {
	subject := codec.TombstoneSubject(hash)
	err = k.change(ctx, codec.Sources, subject, func(is Record) (_ []Write, err error) {
		t = access.Tombstone{Vehicle: hash}
		if is.Seq != 0 {
			t, err = decodeTombstone(subject, is.Body)
		}
		if err != nil || !change(&t) {
			return nil, err
		}
		return AppendJSON(nil, subject, tombstoneRecord{Tombstone: t})
	})
	return t, err
}

// MergeTombstone adds a tombstone, or tombstone keys. If dry, it only reports whether one is missing.
func (k *RecordStore) MergeTombstone(ctx context.Context, r Record, dry bool) (added bool, err error) {
	if r.Subject == codec.VIDKeysSubject {
		return k.mergeVIDKeys(ctx, r, dry)
	}
	t, err := decodeTombstone(r.Subject, r.Body)
	if err != nil || !t.InForce() {
		return false, err
	}
	return k.bury(ctx, t.Vehicle, t.Forgotten, dry)
}

// bury forgets a vehicle, unless it is forgotten already, or was allowed again after at.
func (k *RecordStore) bury(ctx context.Context, hash access.VehicleHash, at time.Time, dry bool) (did bool, err error) {
	_, err = k.changeTombstone(ctx, hash, func(t *access.Tombstone) bool {
		did = t.Forgotten.IsZero() || !t.InForce() && at.After(t.Since)
		if did {
			*t = access.Tombstone{Vehicle: hash, Forgotten: at, Since: k.now()}
		}
		return did && !dry
	})
	return did && err == nil, err
}

// After an error of Bury, the receipts before it have been applied.
func (k *RecordStore) Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error) {
	for _, r := range receipts {
		hash, err := access.ParseVehicleHash(r.Vehicle)
		if err != nil {
			return buried, err
		}
		if r.AllowedAt != nil {
			continue
		}
		switch did, err := k.bury(ctx, hash, r.ForgottenAt, false); {
		case err != nil:
			return buried, err
		case did:
			buried++
		}
	}
	if buried == 0 {
		return 0, nil
	}
	due := k.tombstones(func(t access.Tombstone) bool { return t.State == access.StateForgotten })
	return buried, k.pass(ctx, k.transitions(k.config.Now(), nil)[0], due)
}
