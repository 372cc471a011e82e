package stream_test

import (
	"errors"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/stream"
	"carstate/internal/testkit"
)

// operatorsChange adds, rotates and removes on one node, and wants a node that
// starts later to see the same.
func operatorsChange(t *testing.T, e *stream.Engine) {
	k, _, _ := keeper(t, e)
	o, key, err := access.AddOperator("ada", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.CreateOperator(testkit.Context(t), o); err != nil {
		t.Fatal(err)
	}
	if err := k.CreateOperator(testkit.Context(t), o); !errors.Is(err, access.ErrExists) {
		t.Errorf("added twice: %v", err)
	}
	if got, err := k.Operators().Verify([]byte(key)); err != nil || got.Name != "ada" {
		t.Errorf("%+v, %v", got, err)
	}
	key2, hash := access.NewSecret(access.OperatorKind)
	if _, err := k.UpdateOperator(testkit.Context(t), "ada", func(o *access.Operator) error { o.Rotate(hash, time.Now()); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Operators().Verify([]byte(key)); !errors.Is(err, access.ErrNotKnown) {
		t.Errorf("the replaced key: %v", err)
	}
	other, _, _ := keeper(t, e)
	if got, err := other.Operators().Verify([]byte(key2)); err != nil || got.Name != "ada" || got.Rotated.IsZero() {
		t.Errorf("on another node: %+v, %v", got, err)
	}
	remove := func(o *access.Operator) error { o.Removed = time.Now(); return nil }
	if _, err := k.UpdateOperator(testkit.Context(t), "ada", remove); err != nil {
		t.Fatal(err)
	}
	if _, err := k.UpdateOperator(testkit.Context(t), "ada", remove); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := k.Operators().Verify([]byte(key2)); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("after its removal: %v", err)
	}
	testkit.Await(t, "the change is known", func() bool {
		_, err := other.Operators().Verify([]byte(key2))
		return errors.Is(err, access.ErrRevoked)
	})
	if err := k.CreateOperator(testkit.Context(t), o); err != nil {
		t.Errorf("the name of a removed one: %v", err)
	}
}
