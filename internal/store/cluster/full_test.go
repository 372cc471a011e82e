package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
)

// TestTokensFull checks that a full TOKENS still accepts heartbeats, because each heartbeat
// replaces the previous one. So telemetry is stored, no node restarts, and the copies of the nodes
// remain current.
func TestTokensFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := openOne(t, Config{Patience: slowStore, Timeouts: watchful})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	k := store.NewRecordStore(e, store.Config{}, new(access.Tables))
	running.Go(func() { _ = k.RunTokens(ctx, func() {}) })
	running.Go(func() { _ = k.RunSources(ctx, func() {}) })
	running.Go(func() { _ = newIdleFeed(e, codec.States).run(ctx) })
	// heardSince reports whether every copy has received a heartbeat that was written after the
	// time t.
	heardSince := func(t time.Time) bool {
		age, err := e.FeedAge()
		return err == nil && age < time.Since(t)
	}
	began := time.Now()
	testkit.Await(t, "the copies are current", func() bool { return heardSince(began) })

	s, err := e.js.Stream(ctx, codec.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxBytes = int64(s.CachedInfo().State.Bytes) + 10<<10
	if _, err := e.js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	for n := 0; !full(err); n++ {
		subject := fmt.Sprintf("tokenuse.filler%d", n)
		if _, err = e.js.Publish(ctx, subject, codec.Seal(subject, []byte("\x00{}"))); err != nil && !full(err) {
			t.Fatal(err)
		}
	}
	for range 3 {
		began := time.Now()
		testkit.Await(t, "heartbeats of the full stream come back", func() bool { return heardSince(began) })
		testkit.Await(t, "the engine stores", func() bool { return e.Writable() == nil })
	}
	if err := e.Alive(); err != nil {
		t.Fatal(err)
	}
}

// newIdleFeed returns a feed that ignores the records of a stream.
func newIdleFeed(e *Engine, stream string) *feed {
	f := e.newFeed(stream)
	f.apply = func(store.Record) error { return nil }
	return f
}
