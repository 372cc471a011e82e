package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	e := openOne(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
