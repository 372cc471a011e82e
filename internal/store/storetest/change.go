package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// recordsChange has a record that is a number of bytes, to which each change adds one.
func recordsChange(t *testing.T, e store.Engine) {
	subject := "operator.counter"
	longer := func(is store.Record) ([]store.Write, error) {
		return []store.Write{{Subject: subject, Record: codec.Seal(subject, append(append([]byte{0}, is.Body...), 'x'))}}, nil
	}
	add := func() {
		t.Helper()
		_, err := store.Change(t.Context(), e, time.Second, codec.Sources, subject, longer)
		for errors.Is(err, store.ErrConflict) { // a busy machine takes longer than that
			_, err = store.Change(t.Context(), e, time.Second, codec.Sources, subject, longer)
		}
		if err != nil {
			t.Error(err)
		}
	}
	is := func(length int) uint64 {
		t.Helper()
		r, err := e.Last(t.Context(), codec.Sources, subject)
		if err != nil || !bytes.Equal(r.Body, bytes.Repeat([]byte{'x'}, length)) {
			t.Fatalf("%q, %v; want %d", r.Body, err, length)
		}
		return r.Seq
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
	seq, err := store.Change(t.Context(), e, time.Second, codec.Sources, subject, func(store.Record) ([]store.Write, error) { return nil, nil })
	if seq != rev || err != nil {
		t.Errorf("nothing to do: %d, %v", seq, err)
	}
	// A time-out of the change is no lost answer.
	for _, own := range []error{errors.New("kept"), context.DeadlineExceeded} {
		if _, err := store.Change(t.Context(), e, time.Second, codec.Sources, subject, func(store.Record) ([]store.Write, error) { return nil, own }); err != own {
			t.Errorf("the error %v of a change became %v", own, err)
		}
	}
	if is(40) != rev {
		t.Error("the record was stored again")
	}

	// Others are always faster.
	others := 0
	_, err = store.Change(t.Context(), e, time.Second, codec.Sources, subject, func(is store.Record) ([]store.Write, error) {
		others++
		add()
		return longer(is)
	})
	if !errors.Is(err, store.ErrConflict) || others < 2 {
		t.Errorf("after %d conflicts: %v", others, err)
	}
	is(40 + others)

	// The vehicles that a record refers to are replaced while they are read.
	tries := 0
	if _, err = store.Change(t.Context(), e, time.Second, codec.Sources, subject, func(is store.Record) ([]store.Write, error) {
		if tries++; tries < 3 {
			return nil, fmt.Errorf("%w: what it refers to was replaced", store.ErrConflict)
		}
		return longer(is)
	}); err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	is(41 + others)

	// The end of the context ends it.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = store.Change(ctx, e, time.Second, codec.Sources, subject, func(is store.Record) ([]store.Write, error) {
		add()
		cancel()
		return longer(is)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
	is(42 + others)
}
