package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"carstate/internal/access"
)

// Operators live in SOURCES, which hardly changes and is never full: whoever has
// to remove one must not fail because tokens were counted too often.

// operatorRecord is an operator as it is stored.
type operatorRecord struct {
	Name    string    `json:"name"`
	Hash    []byte    `json:"hash"`
	Created time.Time `json:"created"`
	Rotated time.Time `json:"rotated,omitzero"`
	Removed time.Time `json:"removed,omitzero"`
}

func operatorSubject(name string) string { return "operator." + name }

// Operators is the node's table of operators, which [Keeper.RunSources] feeds.
func (k *Keeper) Operators() *access.Operators { return &k.operators }

// CreateOperator stores a new operator, or returns [access.ErrExists] if the name
// is taken. The name of a removed one is free.
func (k *Keeper) CreateOperator(ctx context.Context, o access.Operator) error {
	_, err := k.change(ctx, k.srcFeed, operatorSubject(o.Name), func(is record) ([]write, error) {
		if is.seq != 0 {
			old, err := decodeOperator(is.body)
			if err != nil {
				return nil, err
			}
			if old.Removed.IsZero() {
				return nil, access.ErrExists
			}
		}
		return packOperator(o)
	})
	return err
}

// UpdateOperator changes an operator's record, as [Keeper.UpdateToken] does. A
// removed one is [access.ErrNotFound].
func (k *Keeper) UpdateOperator(ctx context.Context, name string, change func(*access.Operator) error) (o access.Operator, err error) {
	_, err = k.change(ctx, k.srcFeed, operatorSubject(name), func(is record) ([]write, error) {
		if is.seq == 0 {
			return nil, access.ErrNotFound
		}
		if o, err = decodeOperator(is.body); err != nil {
			return nil, err
		}
		if !o.Removed.IsZero() {
			return nil, access.ErrNotFound
		}
		if err := change(&o); err != nil {
			return nil, err
		}
		return packOperator(o)
	})
	return o, err
}

func packOperator(o access.Operator) ([]write, error) {
	return appendJSON(nil, operatorSubject(o.Name), operatorRecord{
		Name: o.Name, Hash: o.Hash[:], Created: o.Created, Rotated: o.Rotated, Removed: o.Removed,
	})
}

func decodeOperator(body []byte) (access.Operator, error) {
	var r operatorRecord
	if err := json.Unmarshal(body, &r); err != nil || !areHashes(r.Hash, nil) {
		return access.Operator{}, fmt.Errorf("%w: an operator", errDamaged)
	}
	return access.Operator{Name: r.Name, Hash: access.Hash(r.Hash), Created: r.Created, Rotated: r.Rotated, Removed: r.Removed}, nil
}
