package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// Concurrent writers, conflicts and errors: most changes append one byte to the same record.
func recordsChange(t *testing.T, e store.Engine) {
	subject := "operator.counter"
	longer := func(is store.Record) ([]store.Write, error) {
		return []store.Write{{Subject: subject, Record: codec.Seal(subject, append(append([]byte{0}, is.Body...), 'x'))}}, nil
	}
	change := func(f func(store.Record) ([]store.Write, error)) (uint64, error) {
		return store.Change(t.Context(), e, time.Second, codec.Sources, subject, f)
	}
	add := func() {
		t.Helper()
		_, err := change(longer)
		for errors.Is(err, store.ErrConflict) { // on a busy machine, the conflicts may outlast Change's patience
			_, err = change(longer)
		}
		if err != nil {
			t.Errorf("Change: got %v, want no error", err)
		}
	}
	is := func(length int) uint64 {
		t.Helper()
		r, err := e.Last(t.Context(), codec.Sources, subject)
		if err != nil || !bytes.Equal(r.Body, bytes.Repeat([]byte{'x'}, length)) {
			t.Fatalf("got record %q, error %v; want length %d", r.Body, err, length)
		}
		return r.Seq
	}

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

	// A change without writes stores nothing, and an error of the change is returned unchanged.
	seq, err := change(func(store.Record) ([]store.Write, error) { return nil, nil })
	if seq != rev || err != nil {
		t.Errorf("without writes: got sequence %d, error %v; want %d", seq, err, rev)
	}
	for _, own := range []error{errors.New("kept"), context.DeadlineExceeded} {
		if _, err := change(func(store.Record) ([]store.Write, error) { return nil, own }); err != own {
			t.Errorf("got error %v, want %v", err, own)
		}
	}
	if is(40) != rev {
		t.Errorf("a change without writes: got the record stored again, want sequence %d", rev)
	}

	others := 0
	_, err = change(func(is store.Record) ([]store.Write, error) {
		others++
		add()
		return longer(is)
	})
	if !errors.Is(err, store.ErrConflict) || others < 2 {
		t.Errorf("after %d conflicts: got %v, want %v", others, err, store.ErrConflict)
	}
	is(40 + others)

	// In the service, change returns ErrConflict if set records are replaced while they are read.
	tries := 0
	if _, err = change(func(is store.Record) ([]store.Write, error) {
		if tries++; tries < 3 {
			return nil, fmt.Errorf("%w: a set record was replaced", store.ErrConflict)
		}
		return longer(is)
	}); err != nil || tries != 3 {
		t.Errorf("got %d attempts, error %v; want 3", tries, err)
	}
	is(41 + others)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = store.Change(ctx, e, time.Second, codec.Sources, subject, func(is store.Record) ([]store.Write, error) {
		add()
		cancel()
		return longer(is)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: got %v, want %v", err, context.Canceled)
	}
	is(42 + others)
}
