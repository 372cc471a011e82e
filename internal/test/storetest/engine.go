package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func sample(vid string, ms int64, speed float64) vehicle.Sample {
	return Speed(vehicle.ID(vid), ms, speed)
}

// readAll reads at least n samples of a partition with [store.Partition.Next], and checks that the
// sequences that Next returns ascend. It returns the last sequence and the samples.
func readAll(t *testing.T, p store.Partition, n int) (last uint64, all []vehicle.Sample) {
	t.Helper()
	ctx := testkit.Context(t)
	for len(all) < n {
		seq, samples, err := p.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d samples: %v", len(all), n, err)
		}
		if seq <= last {
			t.Fatalf("sequence %d follows %d", seq, last)
		}
		last, all = seq, append(all, samples...)
	}
	return last, all
}

func samplesInOrder(t *testing.T, e store.Engine) {
	const writers, each = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			vid := fmt.Sprintf("car%d", w)
			for i := 0; i < each; {
				var batch []vehicle.Sample
				for range 1 + i%7 {
					x := sample(vid, int64(1000+i), float64(i%200))
					x.Source, x.Crowd = uint32(i%3), i%2 == 0 // also within an Append
					batch = append(batch, x)
					i++
				}
				if err := e.Append(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got := map[vehicle.ID]int64{}
	total := 0
	want := make([]int, e.Partitions())
	for w := range writers {
		want[codec.PartitionOf(vehicle.ID(fmt.Sprintf("car%d", w)), e.Partitions())] += each
	}
	for p := range e.Partitions() {
		part := Take(t, e, p)
		defer part.Close()
		_, all := readAll(t, part, want[p])
		total += len(all)
		for _, x := range all {
			if int64(x.Time) <= got[x.Vehicle] {
				t.Fatalf("%s: the sample of %d follows that of %d", x.Vehicle, x.Time, got[x.Vehicle])
			}
			got[x.Vehicle] = int64(x.Time)
			i := int64(x.Time) - 1000
			if v, _ := x.Value(vehicle.Speed); v != float32(i%200) || x.Source != uint32(i%3) || x.Crowd != (i%2 == 0) {
				t.Fatalf("%s at %d: got the wrong speed %v or source %d %t", x.Vehicle, x.Time, v, x.Source,
					x.Crowd)
			}
		}
	}
	if total < writers*each {
		t.Fatalf("got %d samples, want %d", total, writers*each)
	}
}

func statesAndCursor(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	const vid = "carA"
	p := codec.PartitionOf(vid, e.Partitions())
	for i := range 3 {
		testkit.NoError(t, e.Append(ctx, []vehicle.Sample{sample(vid, int64(1000*(i+1)), 50)}))
	}
	part := takeAs(t, e, p, "first")
	seq, samples, err := part.Next(ctx)
	testkit.NoError(t, err)
	state := vehicle.Observe(vehicle.State{}, samples[0])
	testkit.NoError(t, part.Commit(ctx, seq, Packed(map[vehicle.ID]*vehicle.State{vid: &state}), false))
	part.Close()

	part = takeAs(t, e, p, "second")
	defer part.Close()
	states := StoredStates(t, e, p)
	if len(states) != 1 || states[vid] != state {
		t.Fatalf("got states %+v, want %+v", states, state)
	}
	_, rest := readAll(t, part, 2)
	if rest[0].Time != 2000 || rest[1].Time != 3000 {
		t.Fatalf("after the cursor: got samples of %v and %v, want 2000 and 3000", rest[0].Time, rest[1].Time)
	}
}

func statesOfOwner(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	const vehicles = 200
	first := takeAs(t, e, 0, "first")
	want := make(map[vehicle.ID]vehicle.State)
	check := func(part store.Partition) {
		t.Helper()
		if got := Loaded(t, part); !maps.Equal(got, want) {
			t.Errorf("got states %v, want %v", got, want)
		}
	}
	check(first)
	for at := range int64(3) {
		for v := range vehicles {
			id := fmt.Sprint("car", v)
			want[vehicle.ID(id)] = vehicle.Observe(vehicle.State{}, sample(id, at+1, float64(v)))
		}
		testkit.NoError(t, first.Commit(ctx, uint64(at+1), Packed(Pointers(want)), false))
		check(first)
	}
	check(takeAs(t, e, 0, "second"))
	clear(want) // another partition has other states
	other := takeAs(t, e, 1, "second")
	check(other)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := other.States(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: got %v, want %v", err, context.Canceled)
	}
}

func fencing(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	const racers, rounds = 4, 25
	parts := make([]store.Partition, racers)
	for round := range rounds {
		// All racers take the partition one after the other, then commit concurrently. The racer
		// that took it last is its owner.
		for i := range parts {
			parts[i] = takeAs(t, e, 0, fmt.Sprintf("owner%d", i))
		}
		errs := make([]error, racers)
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				vid := vehicle.ID(fmt.Sprintf("by%d", i))
				s := vehicle.Observe(vehicle.State{}, sample(string(vid), int64(round+1), 10))
				errs[i] = parts[i].Commit(ctx, uint64(round+1), Packed(map[vehicle.ID]*vehicle.State{vid: &s}), false)
			})
		}
		wg.Wait()
		for i, err := range errs {
			if last := i == racers-1; last && err != nil || !last && !errors.Is(err, store.ErrFenced) {
				t.Fatalf("round %d: commit of owner %d: got %v, want success only of the last owner", round, i, err)
			}
		}
	}
	for id, s := range StoredStates(t, e, 0) {
		if id != vehicle.ID(fmt.Sprintf("by%d", racers-1)) || s.Time != rounds {
			t.Errorf("got a state of %s at %d, which only a fenced owner can have stored", id, s.Time)
		}
	}
}

// releasing checks that a node cannot take a partition from a live owner, but gets the partition
// after the owner has released it, and then continues from the owner's last commit.
func releasing(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	asked := ""
	polite := func(holder string) bool { asked = holder; return holder == "" }
	first, err := e.Take(ctx, 0, "first", polite)
	if err != nil || asked != "" {
		t.Fatalf("taking a free partition: got owner %q, error %v", asked, err)
	}
	s := vehicle.Observe(vehicle.State{}, sample("carA", 5, 10))
	testkit.NoError(t, first.Commit(ctx, 1, Packed(map[vehicle.ID]*vehicle.State{"carA": &s}), false))
	if _, err := e.Take(ctx, 0, "second", polite); !errors.Is(err, store.ErrHeld) || asked != "first" {
		t.Fatalf("taking an owned partition: got owner %q, error %v; want %v", asked, err, store.ErrHeld)
	}
	if err := e.Release(ctx, 0, "second"); err != nil { // a node that does not own it
		t.Fatal(err)
	}
	testkit.NoError(t, first.Commit(ctx, 2, nil, false))
	testkit.NoError(t, e.Release(ctx, 0, "first"))
	second, err := e.Take(ctx, 0, "second", polite)
	testkit.NoError(t, err)
	if err := first.Commit(ctx, 3, nil, false); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("commit after a release: got %v, want %v", err, store.ErrFenced)
	}
	if err := e.Release(ctx, 0, "first"); err != nil {
		t.Fatalf("released twice: %v", err)
	}
	if got, ok, err := store.State(ctx, e, "carA"); err != nil || !ok || got != s {
		t.Fatalf("got state %+v, found %v, error %v; want %+v", got, ok, err, s)
	}
	testkit.NoError(t, second.Commit(ctx, 3, nil, false))
}

func feedsFollow(t *testing.T, e store.Engine) {
	ctx, cancel := context.WithCancel(testkit.Context(t))
	part := Take(t, e, 0)
	other := string(inPartition(0, e.Partitions()))
	commit := func(vid string, ms int64) {
		testkit.NoError(t, e.Append(ctx, []vehicle.Sample{sample(other, ms, 10)}))
		seq, _, err := part.Next(ctx)
		testkit.NoError(t, err)
		s := vehicle.Observe(vehicle.State{}, sample(vid, ms, 10))
		part.Answer(vehicle.ID(vid), &s)
		testkit.NoError(t, part.Commit(ctx, seq, Packed(map[vehicle.ID]*vehicle.State{vehicle.ID(vid): &s}), false))
	}
	for i := range 20 {
		commit("before", int64(i+1))
	}
	type update struct {
		id vehicle.ID
		at vehicle.UnixMilli
	}
	updates, caughtUp, done := make(chan update, 100), make(chan struct{}), make(chan error)
	go func() {
		done <- e.FollowStates(
			ctx, func(id vehicle.ID, s *vehicle.State) { updates <- update{id, s.Time} },
			func() { close(caughtUp) },
		)
	}()
	<-caughtUp
	if u := <-updates; u != (update{"before", 20}) || len(updates) != 0 {
		t.Fatalf("at the start: got %v and %d more, want only the last state", u, len(updates))
	}
	// Use two vehicles, because a feed may skip a state that is replaced before the feed has read
	// it.
	commit("after", 21)
	commit("later", 22)
	for _, want := range []update{{"after", 21}, {"later", 22}} {
		if u := <-updates; u != want {
			t.Fatalf("got %v, want %v", u, want)
		}
	}
	cancel()
	testkit.NoError(t, <-done)
}

// backupOfAll checks that a backup contains every vehicle, even if many states are replaced while
// the backup is taken.
func backupOfAll(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	const vehicles, backups = 3000, 20
	k := store.NewRecordStore(e, store.Config{}, new(access.Tables))
	part := Take(t, e, 0)
	defer part.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	commit := func(at int64, n int, car func(i int) int) error {
		states := make(map[vehicle.ID]*vehicle.State, n)
		for i := range n {
			if len(states) == store.BatchStates {
				if err := part.Commit(ctx, 0, Packed(states), false); err != nil {
					return err
				}
				clear(states)
			}
			id := fmt.Sprintf("car%d", car(i))
			states[vehicle.ID(id)] = new(vehicle.Observe(vehicle.State{}, sample(id, at, 10)))
		}
		return part.Commit(ctx, 0, Packed(states), false)
	}
	testkit.NoError(t, commit(1, vehicles, func(i int) int { return i }))
	done := make(chan struct{})
	var storing sync.WaitGroup
	defer storing.Wait()
	defer close(done)
	storing.Go(func() {
		for at := int64(2); ; at++ {
			select {
			case <-done:
				return
			default:
			}
			if err := commit(at, 1+rnd.IntN(400), func(int) int { return rnd.IntN(vehicles) }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	subjects := regexp.MustCompile(`state\.0\.car\d+`)
	for i := range backups {
		seen := make(map[string]bool)
		for _, subject := range subjects.FindAll(backupOf(t, k), -1) {
			seen[string(subject)] = true
		}
		if len(seen) != vehicles {
			t.Fatalf("backup %d: got %d vehicles, want %d", i, len(seen), vehicles)
		}
	}
}
