package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"carstate/internal/store"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/store/storetest"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// TestSilentSubscription checks that a subscription is replaced if it is silent, for any reason,
// although there is something to fold.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{Patience: slowStore, Timeouts: watchful})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	p, err := e.take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	storeSample(t, e, 1)
	if _, _, err := p.Next(ctx); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if p.sub, err = e.nc.SubscribeSync("nobody.speaks.here"); err != nil {
		t.Fatal(err)
	}
	storeSample(t, e, 2)
	_, samples, err := p.Next(ctx)
	if err != nil || samples[0].Time != 2 {
		t.Fatalf("got %v, %v", samples, err)
	}
}

// TestClosedSubscription checks that a closed subscription of a partition causes an error, not
// silence.
func TestClosedSubscription(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{})
	p, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	storeSample(t, e, 1)
	if _, _, err := p.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Next(t.Context()); !errors.Is(err, nats.ErrBadSubscription) {
		t.Fatal(err)
	}
}

// TestTelemetryBehindCursor checks that TELEMETRY is folded from its beginning after it was
// re-created or has lost its end. Its new commits then have sequences below the cursor, which
// otherwise would count as folded.
func TestTelemetryBehindCursor(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *Engine){
		"re-created": func(t *testing.T, e *Engine) {
			if err := e.js.DeleteStream(t.Context(), codec.Telemetry); err != nil {
				t.Fatal(err)
			}
			if _, err := ensureStreams(t.Context(), e.js, e.config); err != nil {
				t.Fatal(err)
			}
		},
		"re-created and grown": func(t *testing.T, e *Engine) {
			if err := e.js.DeleteStream(t.Context(), codec.Telemetry); err != nil {
				t.Fatal(err)
			}
			if _, err := ensureStreams(t.Context(), e.js, e.config); err != nil {
				t.Fatal(err)
			}
			for at := range int64(20) {
				storeSample(t, e, 100+at)
			}
		},
		"its end lost": func(t *testing.T, e *Engine) {
			// The test cannot shorten the stream, so it moves the cursor beyond its end.
			p, err := e.take(t.Context(), 0, "future", store.Anyone)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Commit(t.Context(), 1000, nil); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := clustertest.External(t)
			e := openOne(t, Config{URLs: url})
			for at := range int64(10) {
				storeSample(t, e, at+1)
			}
			foldAll(t, e, 10)
			lose(t, e)
			storeSample(t, e, 1000)
			trim(t, forgetful(t, url, 1))
			foldAll(t, e, 1000) // returns only if the sample is read
			measure(t, e)
			if age := e.backlog.age(); age != 0 {
				t.Errorf("the backlog's age is %v", age)
			}
		})
	}
}

// TestTelemetryReplaced checks that a partition notices if TELEMETRY is re-created while the
// partition is read.
func TestTelemetryReplaced(t *testing.T) {
	t.Parallel()
	for _, grown := range []int64{1, 30} {
		t.Run(fmt.Sprint(grown), func(t *testing.T) {
			t.Parallel()
			e := openOne(t, Config{Patience: slowStore, Timeouts: watchful})
			ctx, cancel := context.WithCancel(testkit.Context(t))
			defer cancel()
			p, err := e.take(ctx, 0, "test", store.Anyone)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for at := range int64(10) {
				storeSample(t, e, at+1)
				if _, _, err := p.Next(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.js.DeleteStream(ctx, codec.Telemetry); err != nil {
				t.Fatal(err)
			}
			if _, err := ensureStreams(ctx, e.js, e.config); err != nil {
				t.Fatal(err)
			}
			for at := range grown {
				storeSample(t, e, 100+at)
			}
			if _, samples, err := p.Next(ctx); !errors.Is(err, store.ErrReplaced) {
				t.Fatalf("got %v, %v", samples, err)
			}
		})
	}
}

// statesOf returns states of n vehicles.
func statesOf(n int) map[vehicle.ID]*vehicle.State {
	states := make(map[vehicle.ID]*vehicle.State, n)
	for i := range n {
		states[vehicle.ID(fmt.Sprintf("car%d", i))] = &vehicle.State{Time: 1}
	}
	return states
}

// TestFencedBeforeTheFirstBatch checks that an owner that has lost the partition stores nothing,
// not even the first batch of a commit that needs several.
func TestFencedBeforeTheFirstBatch(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{})
	old, err := e.take(t.Context(), 0, "old", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.take(t.Context(), 0, "new", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Commit(t.Context(), 1, statesOf(store.BatchStates+1)); !errors.Is(err, store.ErrFenced) {
		t.Fatal(err)
	}
	if stored := storetest.StoredStates(t, e, p.number); len(stored) != 0 {
		t.Errorf("%d states are stored, want none", len(stored))
	}
}

// TestCrashBetweenBatches simulates a crash between two batches, which leaves states that are ahead
// of the cursor. The samples of these states must be read again, and must change nothing.
func TestCrashBetweenBatches(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{})
	for at := range int64(3) {
		storeSample(t, e, at+1)
	}
	p, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[vehicle.ID]vehicle.State)
	for range 3 {
		_, samples, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range samples {
			states[x.Vehicle] = vehicle.Observe(states[x.Vehicle], x)
		}
	}
	var first []store.Write
	for id, s := range states {
		first = append(first, p.stateWrite(id, &s))
	}
	if err := p.commitBatch(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	p.Close()

	again, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for i := range 3 {
		_, samples, err := again.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range samples {
			if x.Time != vehicle.UnixMilli(i+1) {
				t.Fatalf("the sample of %d was read, not that of %d", x.Time, i+1)
			}
			known, ok, err := store.State(t.Context(), e, x.Vehicle)
			if err != nil || !ok || known != states[x.Vehicle] {
				t.Fatalf("%v is stored, %v, %v", known, ok, err)
			}
			if vehicle.Observe(known, x) != known {
				t.Errorf("the sample of %d changed a state that knew it", x.Time)
			}
		}
	}
}

// TestTooManyStates checks that a commit with more states than the limit is refused, and not
// retried forever.
func TestTooManyStates(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := openOne(t, Config{})
	p, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	states := statesOf(store.MaxStates + 1)
	if err := p.Commit(t.Context(), 1, states); err == nil {
		t.Fatal("it was stored")
	}
	for id := range states {
		delete(states, id)
		break
	}
	if err := p.Commit(t.Context(), 1, states); err != nil {
		t.Fatal(err)
	}
	if n := len(storetest.StoredStates(t, e, 0)); n != store.MaxStates {
		t.Fatalf("%d states are stored, want %d", n, store.MaxStates)
	}
}

// TestEveryPartitionIsRead checks that all partitions can be read at the same time, even if there
// are more than 1,000, which is the default limit of a server for the consumers of a stream.
func TestEveryPartitionIsRead(t *testing.T) { // not in parallel, because it keeps the whole machine busy
	const partitions = 1001
	e := openOne(t, Config{Partitions: partitions})
	for p := range partitions {
		part := &Partition{e: e, number: p, next: 1}
		if err := part.subscribe(); err != nil {
			t.Fatalf("partition %d of %d: %v", p, partitions, err)
		}
		defer part.Close()
	}
}
