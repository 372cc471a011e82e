package storetest

import (
	"errors"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/testkit"
)

// operatorsChange adds, rotates and removes an operator on one node. It checks that a node that
// starts later has the same operators.
func operatorsChange(t *testing.T, e store.Engine) {
	k, tables := RunKeeper(t, e, store.Config{})
	o, key := create(t, k, access.Request{Kind: access.OperatorKind, Name: "ada"})
	if err := k.Create(testkit.Context(t), o); !errors.Is(err, access.ErrExists) {
		t.Errorf("adding twice: got %v, want %v", err, access.ErrExists)
	}
	if got, err := tables.Operators.Verify([]byte(key), time.Now()); err != nil || got.Name != "ada" {
		t.Errorf("Verify: got %+v, error %v; want ada", got, err)
	}
	key2 := rotate(t, k, access.OperatorKind, "ada", 0)
	if _, err := tables.Operators.Verify([]byte(key), time.Now()); !errors.Is(err, access.ErrReplaced) {
		t.Errorf("the replaced key: got %v, want %v", err, access.ErrReplaced)
	}
	_, other := RunKeeper(t, e, store.Config{})
	got, err := other.Operators.Verify([]byte(key2), time.Now())
	if err != nil || got.Name != "ada" || got.Rotated.IsZero() {
		t.Errorf("on another node: got %+v, error %v; want ada, rotated", got, err)
	}
	update(t, k, access.OperatorKind, "ada", end)
	if _, err := k.Update(testkit.Context(t), access.OperatorKind, "ada", end); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("removing twice: got %v, want %v", err, access.ErrNotFound)
	}
	if _, err := tables.Operators.Verify([]byte(key2), time.Now()); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("after the removal: got %v, want %v", err, access.ErrRevoked)
	}
	testkit.Await(t, "the change is known", func() bool {
		_, err := other.Operators.Verify([]byte(key2), time.Now())
		return errors.Is(err, access.ErrRevoked)
	})
	if err := k.Create(testkit.Context(t), o); err != nil {
		t.Errorf("using the name of a removed operator: got %v, want success", err)
	}
}
