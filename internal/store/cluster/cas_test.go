package cluster

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
)

// A record that is a number of bytes, to which each change adds one. Lost answers are
// in TestLostAnswerOfARecord.
func TestChangeRecord(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := openOne(t, Config{Patience: Patience{Store: time.Second}})
	subject := "operator.counter"
	longer := func(is record) ([]write, error) {
		return []write{{subject: subject, record: codec.Seal(subject, append(append([]byte{0}, is.body...), 'x'))}}, nil
	}
	add := func() {
		t.Helper()
		_, err := e.changeRecord(t.Context(), Sources, subject, longer)
		for errors.Is(err, store.ErrConflict) { // a busy machine takes longer than Patience.Store
			_, err = e.changeRecord(t.Context(), Sources, subject, longer)
		}
		if err != nil {
			t.Error(err)
		}
	}
	is := func(length int) uint64 {
		t.Helper()
		body, rev, err := e.lastRecord(t.Context(), Sources, subject)
		if err != nil || !bytes.Equal(body, bytes.Repeat([]byte{'x'}, length)) {
			t.Fatalf("%q, %v; want %d", body, err, length)
		}
		return rev
	}

	// Conflicts: every change counts.
	var changing sync.WaitGroup
	for range 8 {
		changing.Go(func() {
			for range 5 {
				add()
			}
		})
	}
	changing.Wait()
	rev := is(40)

	// A change that finds nothing to do stores nothing, and an error of its own is
	// returned as it is.
	seq, err := e.changeRecord(t.Context(), Sources, subject, func(record) ([]write, error) { return nil, nil })
	if seq != rev || err != nil {
		t.Errorf("nothing to do: %d, %v", seq, err)
	}
	// A time-out of the change is no lost answer.
	for _, own := range []error{errKeep, context.DeadlineExceeded} {
		if _, err := e.changeRecord(t.Context(), Sources, subject, func(record) ([]write, error) { return nil, own }); err != own {
			t.Errorf("the error %v of a change became %v", own, err)
		}
	}
	if is(40) != rev {
		t.Error("the record was stored again")
	}

	// Others are always faster.
	others := 0
	_, err = e.changeRecord(t.Context(), Sources, subject, func(is record) ([]write, error) {
		others++
		add()
		return longer(is)
	})
	if !errors.Is(err, store.ErrConflict) || !conflict(err) || others < 2 {
		t.Errorf("after %d conflicts: %v", others, err)
	}
	is(40 + others)

	// The vehicles that a record refers to are replaced while they are read.
	tries := 0
	if _, err = e.changeRecord(t.Context(), Sources, subject, func(is record) ([]write, error) {
		if tries++; tries < 3 {
			return nil, errSetChanged
		}
		return longer(is)
	}); err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	is(41 + others)

	// The end of the context ends it.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = e.changeRecord(ctx, Sources, subject, func(is record) ([]write, error) {
		add()
		cancel()
		return longer(is)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
	is(42 + others)
}
