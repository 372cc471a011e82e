package local

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// open opens an engine and closes it when the test ends.
func open(t testing.TB, c Config) *Engine {
	t.Helper()
	if c.FS == nil {
		c.FS = vfs.NewMem()
	}
	if c.DataDir == "" {
		c.DataDir = "/data"
	}
	e, err := Open(context.Background(), c)
	return testkit.Opened(t, e, err)
}

// mustOpen opens an engine, which the test must close.
func mustOpen(ctx context.Context, t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := Open(ctx, c)
	testkit.NoError(t, err)
	return e
}

// put appends samples.
func put(ctx context.Context, t testing.TB, e *Engine, samples ...vehicle.Sample) {
	t.Helper()
	testkit.NoError(t, e.Append(ctx, samples))
}

// take makes the test the owner of a partition.
func take(ctx context.Context, t testing.TB, e *Engine, p int) store.Partition {
	t.Helper()
	part, err := e.Take(ctx, p, "me", store.Anyone)
	testkit.NoError(t, err)
	return part
}

// storeAll stores records of a stream.
func storeAll(ctx context.Context, t testing.TB, e *Engine, stream string, writes ...store.Write) {
	t.Helper()
	_, err := e.Store(ctx, stream, writes)
	testkit.NoError(t, err)
}

// record returns the write of a record with the given body.
func record[Text string | []byte](subject string, body Text) store.Write {
	return store.Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, body...))}
}

func sample(vid string, ms int64, speed float64) vehicle.Sample {
	x := vehicle.Sample{Vehicle: vehicle.ID(vid), Time: vehicle.UnixMilli(ms)}
	if err := x.Set(vehicle.Speed, speed); err != nil {
		panic(err)
	}
	return x
}

// TestRecallKeepsAnswers publishes answers whose states are not stored, and then recalls the
// partition: its owner loses it, and it must be taken again. The test checks that the next owner
// folds the samples of these answers again, and that the event time of the published answers never
// decreases.
func TestRecallKeepsAnswers(t *testing.T) {
	ctx := testkit.Context(t)
	table := new(answers)
	e := open(t, Config{Answers: table})
	var answers []vehicle.UnixMilli
	following := make(chan struct{})
	go e.FollowStates(ctx, func(id vehicle.ID, s *vehicle.State) {
		table.put(id, s)
		answers = append(answers, s.Time)
	}, func() { close(following) })
	<-following
	for n := range int64(5) {
		put(ctx, t, e, sample("v", 1000*n+1000, 50))
	}
	for _, groups := range []int{3, 5} {
		p := take(ctx, t, e, 0)
		var state vehicle.State
		for range groups {
			_, samples, err := p.Next(ctx)
			if err != nil || len(samples) != 1 {
				t.Fatalf("Next: got %v, %v, want one sample", samples, err)
			}
			state = vehicle.Observe(state, samples[0])
			p.Answer("v", &state)
		}
		if groups == 3 {
			testkit.NoError(t, e.Fence(ctx, 0, 0, ""))
		}
		p.Close()
	}
	// An answer may be published again, because its verdict may have changed.
	if want := []vehicle.UnixMilli{1000, 2000, 3000, 3000, 4000, 5000}; !slices.Equal(answers, want) {
		t.Errorf("answers of %v, want %v", answers, want)
	}
}

// given appends a sample to partition n of an empty engine, takes the partition, and returns the
// result of the first call of Next.
func given(
	ctx context.Context, t *testing.T, e *Engine, n int, x vehicle.Sample,
) (p store.Partition, seq uint64, samples []vehicle.Sample) {
	t.Helper()
	testkit.NoError(t, e.Append(ctx, []vehicle.Sample{x}))
	p, err := e.Take(ctx, n, "me", store.Anyone)
	if err == nil {
		seq, samples, err = p.Next(ctx)
	}
	testkit.NoError(t, err)
	return p, seq, samples
}

// TestSettle_StoresFoldedStates checks that Settle stores folded states at once, without
// waiting until the checkpoint is due.
func TestSettle_StoresFoldedStates(t *testing.T) {
	ctx := testkit.Context(t)
	e := open(t, Config{})
	p, seq, samples := given(ctx, t, e, 0, sample("v", 1000, 50))
	state := vehicle.Observe(vehicle.State{}, samples[0])
	p.Answer("v", &state)
	folding := make(chan error)
	go func() {
		_, _, err := p.Next(ctx)
		if errors.Is(err, store.ErrSettle) {
			err = p.Commit(ctx, seq, storetest.Packed(map[vehicle.ID]*vehicle.State{"v": &state}), false)
		}
		folding <- err
	}()
	testkit.Await(t, "the state is stored", func() bool {
		e.Settle(ctx)
		r, err := e.Last(ctx, codec.States, codec.StateSubject(0, "v"))
		return err == nil && r.Seq != 0
	})
	testkit.NoError(t, <-folding)
}

// TestState_NotStoredYet checks that State returns the newest state of a vehicle, which the owner
// of its partition has in memory, and the stored state once the owner has none.
func TestState_NotStoredYet(t *testing.T) {
	ctx := testkit.Context(t)
	e := open(t, Config{})
	p, _, samples := given(ctx, t, e, 0, sample("v", 1000, 50))
	older := vehicle.Observe(vehicle.State{}, samples[0])
	testkit.NoError(t, p.Commit(ctx, 0, storetest.Packed(map[vehicle.ID]*vehicle.State{"v": &older}), false))
	newer := vehicle.Observe(older, sample("v", 2000, 60))
	idle, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	_, _, _ = p.Next(idle) // the engine learns that the sample is folded
	cancel()
	for _, c := range []struct {
		inMemory *vehicle.State
		want     vehicle.State
	}{{&newer, newer}, {nil, older}} {
		var owner sync.WaitGroup
		owner.Go(func() {
			_, _, err := p.Next(ctx)
			if r, ok := errors.AsType[*store.StateRequest](err); !ok || r.Vehicle != "v" {
				t.Errorf("Next: got %v, want a request for the state", err)
			} else {
				r.Reply(c.inMemory)
			}
		})
		got, ok, err := store.State(ctx, e, "v")
		if err != nil || !ok || got != c.want {
			t.Errorf("state: got %+v, %v, %v, want %+v", got, ok, err, c.want)
		}
		owner.Wait()
	}
}

// TestProgress_OfAStart checks the progress of a start with one state, into which the first of two
// groups of telemetry is folded.
func TestProgress_OfAStart(t *testing.T) {
	ctx, c := testkit.Context(t), Config{FS: vfs.NewMem(), DataDir: "/data"}
	e := mustOpen(ctx, t, c)
	p, seq, samples := given(ctx, t, e, 0, sample("v", 1000, 50))
	state := vehicle.Observe(vehicle.State{}, samples[0])
	testkit.NoError(t, p.Commit(ctx, seq, storetest.Packed(map[vehicle.ID]*vehicle.State{"v": &state}), false))
	put(ctx, t, e, sample("v", 2000, 50))
	testkit.NoError(t, e.Close())
	e = open(t, c)
	want := func(want Progress) {
		t.Helper()
		if got := e.Progress(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	want(Progress{Groups: 1})
	next := storetest.Take(t, e, 0)
	storetest.Loaded(t, next)
	want(Progress{States: 1, Groups: 1})
	_, _, err := next.Next(ctx)
	testkit.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, _, _ = next.Next(ended) // the engine learns that the sample is folded
	want(Progress{States: 1, Folded: 1, Groups: 1})
}

// TestFence_DropsOneState checks that an owner that has dropped the state of a forgotten vehicle
// goes on with its other states, and must take the partition again if it stores that state
// nevertheless.
func TestFence_DropsOneState(t *testing.T) {
	ctx := testkit.Context(t)
	e := open(t, Config{})
	p, seq, samples := given(ctx, t, e, 0, sample("v", 1000, 50))
	forgotten := e.Forgotten()
	forgotten.Put(access.Tombstone{Vehicle: forgotten.Hash("v"), Forgotten: time.Now()})
	var owner sync.WaitGroup
	owner.Go(func() {
		_, _, err := p.Next(ctx)
		if r, ok := errors.AsType[*store.StateRequest](err); !ok || r.Vehicle != "v" || !r.Drop {
			t.Errorf("Next: got %v, want a request to drop the state", err)
		} else {
			r.Reply(nil)
		}
	})
	testkit.NoError(t, e.Fence(ctx, 0, 0, "v"))
	owner.Wait()
	other := vehicle.Observe(vehicle.State{}, sample("w", 1000, 50))
	testkit.NoError(t, p.Commit(ctx, 0, storetest.Packed(map[vehicle.ID]*vehicle.State{"w": &other}), false))
	state := vehicle.Observe(vehicle.State{}, samples[0])
	err := p.Commit(ctx, seq, storetest.Packed(map[vehicle.ID]*vehicle.State{"v": &state}), false)
	if !errors.Is(err, store.ErrRecalled) {
		t.Errorf("commit of the forgotten state: got %v, want %v", err, store.ErrRecalled)
	}
}

// TestSyncInterval_SyncsLater checks that with a SyncInterval, a sample is on disk after the
// interval, also if nothing else is stored afterwards, and not necessarily before.
func TestSyncInterval_SyncsLater(t *testing.T) {
	ctx := testkit.Context(t)
	// onDisk returns the last sequence that an engine finds after a power cut.
	onDisk := func(fs *vfs.MemFS) uint64 {
		e := mustOpen(ctx, t, Config{FS: fs.CrashClone(vfs.CrashCloneCfg{}), DataDir: "/data"})
		defer e.Close()
		return e.telemetryEnd()
	}
	for _, interval := range []time.Duration{time.Millisecond, time.Hour} {
		fs := vfs.NewCrashableMem()
		e := open(t, Config{FS: fs, SyncInterval: interval})
		for n := range int64(3) {
			put(ctx, t, e, sample("v", 1000*n+1000, 50))
			if interval == time.Millisecond {
				testkit.Await(t, "the sample to be on disk", func() bool { return onDisk(fs) == uint64(n)+1 })
			} else if got := onDisk(fs); got != 0 {
				t.Errorf("samples on disk before the interval has passed: got %d, want 0", got)
			}
		}
	}
}
