package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// forgetConsumers makes the server lose a stream's consumers.
func forgetConsumers(ctx context.Context, e *Engine, stream string) (n int) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return 0
	}
	for name := range s.ConsumerNames(ctx).Name() {
		if s.DeleteConsumer(ctx, name) == nil {
			n++
		}
	}
	return n
}

// A feed whose consumer is lost again and again, at any moment, brings every
// change in order and none twice.
func TestFeedLosesConsumers(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{Patience: watchful})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	p, err := e.Take(ctx, 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(e, States)
	var last, newest atomic.Uint64
	f.apply = func(r record) error {
		if r.seq <= last.Load() {
			t.Errorf("record %d came after %d", r.seq, last.Load())
		}
		last.Store(r.seq)
		if id, ok := vehicleOfState(r.subject); ok {
			var n uint64
			fmt.Sscanf(string(id), "car%d", &n)
			if n != newest.Load()+1 {
				t.Errorf("car%d came after car%d", n, newest.Load())
			}
			newest.Store(n)
		}
		return nil
	}
	var running sync.WaitGroup
	feeding, stop := context.WithCancel(ctx)
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := f.run(feeding); err != nil {
			t.Error(err)
		}
	})
	forgotten := 0
	for n := uint64(1); forgotten < 8; n++ {
		id := vehicle.ID(fmt.Sprintf("car%d", n))
		state := vehicle.Observe(vehicle.State{}, speedAt(string(id), 1))
		if err := p.Commit(ctx, n, map[vehicle.ID]vehicle.State{id: state}); err != nil {
			t.Fatal(err)
		}
		// The next one is forgotten as soon as it is there.
		for before := forgotten; forgotten == before; {
			select {
			case <-ctx.Done():
				t.Fatalf("%d consumers were forgotten", forgotten)
			case <-time.After(2 * time.Millisecond):
			}
			forgotten += forgetConsumers(ctx, e, States)
		}
		if forgotten%3 == 0 {
			for newest.Load() < n {
				select {
				case <-ctx.Done():
					t.Fatalf("car%d did not come", n)
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	}
}

// A feed goes live although others write to its stream all the time, so that the
// engine never has nothing more to send.
func TestFeedOfBusyStream(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{})
	end := func() uint64 {
		s, err := e.js.Stream(t.Context(), States)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	p, err := e.Take(t.Context(), 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, pending := range []uint64{0, 1} {
		f := newFeed(e, States)
		f.goal = end()
		live := false
		f.caughtUp = func() { live = true }
		apply := func(seq, pending uint64) {
			t.Helper()
			f.last = seq
			if err := f.progress(t.Context(), pending); err != nil {
				t.Fatal(err)
			}
		}
		apply(f.goal-1, 1)
		// Meanwhile others write.
		if err := p.Commit(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		if live {
			t.Fatal("live before the record that was the last one at the start")
		}
		apply(f.goal, pending)
		if live != (pending == 0) {
			t.Fatalf("with %d pending at the first goal: live is %t", pending, live)
		}
		if now := end(); pending == 1 && (f.goal > now || f.goal < now-2) {
			t.Fatalf("the second goal is %d; the stream ends at %d", f.goal, now)
		}
		apply(f.goal, pending)
		if !live {
			t.Fatal("not live after the second goal")
		}
	}
}
