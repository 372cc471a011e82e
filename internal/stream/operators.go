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
	for {
		body, rev, err := k.e.lastRecord(ctx, Sources, operatorSubject(o.Name))
		if err != nil {
			return err
		}
		if rev != 0 {
			old, err := decodeOperator(body)
			if err != nil {
				return err
			}
			if old.Removed.IsZero() {
				return access.ErrExists
			}
		}
		if err := k.putOperator(ctx, o, rev); !conflict(err) {
			return err
		}
	}
}

// UpdateOperator changes an operator's record, as [Keeper.UpdateToken] does. A
// removed one is [access.ErrNotFound].
func (k *Keeper) UpdateOperator(ctx context.Context, name string, change func(*access.Operator) error) (access.Operator, error) {
	for {
		body, rev, err := k.e.lastRecord(ctx, Sources, operatorSubject(name))
		if err != nil {
			return access.Operator{}, err
		}
		if rev == 0 {
			return access.Operator{}, access.ErrNotFound
		}
		o, err := decodeOperator(body)
		if err != nil {
			return access.Operator{}, err
		}
		if !o.Removed.IsZero() {
			return access.Operator{}, access.ErrNotFound
		}
		if err := change(&o); err != nil {
			return access.Operator{}, err
		}
		if err := k.putOperator(ctx, o, rev); !conflict(err) {
			return o, err
		}
	}
}

func (k *Keeper) putOperator(ctx context.Context, o access.Operator, rev uint64) error {
	return k.put(ctx, k.srcFeed, operatorSubject(o.Name), rev, nil, operatorRecord{
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
