package derive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/road/roadtest"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/storetest"
	"example.org/carstate/internal/vehicle"
)

// script is a partition that returns what a test scripts. It serves tests on the fake clock, where
// a real engine would take real time.
type script struct {
	next    func(ctx context.Context) (uint64, []vehicle.Sample, error)
	waiting bool
	commits []commit
	err     error         // returned by Commit
	takes   time.Duration // duration of a commit

	storedAt time.Time // returned by Stored

	mu     sync.Mutex // guards stored, folded, cursor and commits
	stored map[vehicle.ID]vehicle.State
	folded map[vehicle.ID]uint64 // of the states in stored
	cursor uint64
	reads  int
	loads  []int // number of vehicles in each Load
	unread error // returned by Load
}

type commit struct {
	after  time.Duration
	seq    uint64
	states int
}

func (s *script) Next(ctx context.Context) (uint64, []vehicle.Sample, error) { return s.next(ctx) }
func (s *script) Stored() time.Time                                          { return s.storedAt }
func (s *script) Waiting() bool                                              { return s.waiting }
func (s *script) Close()                                                     {}

func (s *script) Load(_ context.Context, ids []vehicle.ID, put func(int, vehicle.State, uint64)) error {
	s.loads = append(s.loads, len(ids))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		s.reads++
		if state, ok := s.stored[id]; ok {
			put(i, state, s.folded[id])
		}
	}
	return s.unread
}

func (s *script) Commit(
	ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State, more bool,
) error {
	if s.err != nil {
		return s.err
	}
	moves := seq
	if more {
		moves = 0
	}
	s.mu.Lock()
	s.commits = append(s.commits, commit{time.Since(began), moves, len(states)})
	s.mu.Unlock()
	if s.takes > 0 { // on the fake clock
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		s.stored, s.folded = make(map[vehicle.ID]vehicle.State), make(map[vehicle.ID]uint64)
	}
	for id, state := range states {
		s.stored[id], s.folded[id] = *state, seq
	}
	s.cursor = max(s.cursor, moves)
	return nil
}

func sampleOf(id vehicle.ID, at vehicle.UnixMilli) vehicle.Sample {
	return storetest.Speed(id, int64(at), 50)
}

// fold loads the states of the samples' vehicles, folds the samples, and returns the number of
// states read.
func fold(t *testing.T, f *folding, part store.Partition, seq uint64, samples ...vehicle.Sample) (read int) {
	t.Helper()
	read, err := f.load(t.Context(), part, samples)
	if err != nil {
		t.Fatal(err)
	}
	f.apply(seq, part.Stored(), samples)
	return read
}

// TestLoad_FailureIsNotNoState checks that if a state cannot be read, its vehicle is not folded as
// if it had no state.
func TestLoad_FailureIsNotNoState(t *testing.T) {
	f := newFolding((*vehicle.State).Fold, 10, 1)
	known := vehicle.Observe(vehicle.State{}, sampleOf("carA", 5))
	part := &script{unread: errors.New("not now"), stored: map[vehicle.ID]vehicle.State{"carA": known}}
	samples := []vehicle.Sample{sampleOf("carA", 1), sampleOf("carB", 1)}
	if _, err := f.load(t.Context(), part, samples); !errors.Is(err, part.unread) {
		t.Fatal(err)
	}
	part.unread = nil
	if n := fold(t, f, part, 1, samples...); n != 2 || f.touched["carA"].state != known {
		t.Fatalf("%d states read, want 2; carA is %+v, want the stored state", n, f.touched["carA"].state)
	}
}

// TestFolding_EndsInTheSameBytes folds the same log with any cache, checkpoints, crashes and clock
// errors of cars and of the machine. The stored states must equal those of a plain fold, which
// resets a state from the future as apply says, and the limits of memory must hold.
func TestFolding_EndsInTheSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxStates, vehicles, groups = 6, 7, 40
		type group struct {
			stored  time.Time
			samples []vehicle.Sample
		}
		log := make([]group, groups+1) // by sequence
		want := make(map[vehicle.ID]vehicle.State)
		clock := time.UnixMilli(1e12)
		steps := []time.Duration{time.Second, time.Second, 20 * time.Second, 10 * time.Minute, -10 * time.Minute}
		errs := []time.Duration{0, 0, 0, -time.Hour, 25 * time.Second, 2 * time.Minute, 24 * time.Hour}
		for seq := 1; seq <= groups; seq++ {
			clock = clock.Add(rapid.SampledFrom(steps).Draw(t, "step"))
			log[seq] = group{clock, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) vehicle.Sample {
				at := clock.Add(rapid.SampledFrom(errs).Draw(t, "error"))
				id := vehicle.ID(rune('a' + rapid.IntRange(0, vehicles-1).Draw(t, "vehicle")))
				x := storetest.Speed(id, at.UnixMilli(), rapid.Float64Range(0, 200).Draw(t, "speed"))
				if rapid.IntRange(0, 5).Draw(t, "load") == 0 { // a state remembers it until the next one
					_ = x.Set(vehicle.EngineLoad, 50) // is possible
				}
				return x
			}), 1, maxStates).Draw(t, "samples")}
			for _, x := range log[seq].samples {
				s := want[x.Vehicle]
				current := x.Time.Time().Sub(clock).Abs() <= vehicle.MaxAhead
				if current && s.Time.Time().Sub(clock) > vehicle.MaxAhead {
					s = vehicle.State{}
				}
				want[x.Vehicle] = vehicle.Observe(s, x)
			}
		}
		cacheBytes := rapid.SampledFrom([]int{1, 500, 1 << 20}).Draw(t, "cacheBytes")
		part, f := new(script), newFolding((*vehicle.State).Fold, maxStates, cacheBytes)
		var stored uint64
		var states map[vehicle.ID]*vehicle.State
		underWay := false
		store := func(states map[vehicle.ID]*vehicle.State, more bool) {
			if err := part.Commit(context.Background(), stored, states, more); err != nil {
				t.Fatal(err)
			}
		}
		finish := func() {
			store(states, false)
			f.finish()
			underWay = false
		}
		crashes := rapid.IntRange(0, 8).Draw(t, "crashes")
		for seq := uint64(1); seq <= groups; seq++ {
			if underWay && crashes > 0 && rapid.IntRange(0, 3).Draw(t, "crash") == 0 {
				crashes--
				some := maps.Clone(states)
				maps.DeleteFunc(some, func(vehicle.ID, *vehicle.State) bool { return rapid.Bool().Draw(t, "lost") })
				store(some, true)
				seq, underWay, f = part.cursor, false, newFolding((*vehicle.State).Fold, maxStates, cacheBytes)
				continue
			}
			g := log[seq]
			begin := !f.fits(g.samples) || rapid.IntRange(0, 7).Draw(t, "begin") == 0
			if underWay && (begin || rapid.IntRange(0, 3).Draw(t, "finish") == 0) {
				finish()
			}
			if begin && f.seq != 0 {
				stored, states = f.begin()
				underWay = true
			}
			if _, err := f.load(context.Background(), part, g.samples); err != nil {
				t.Fatal(err)
			}
			f.apply(seq, g.stored, g.samples)
			f.pack(rapid.IntRange(0, 3).Draw(t, "packed"))
			if len(f.touched) > maxStates {
				t.Fatalf("%d touched, want at most %d", len(f.touched), maxStates)
			}
		}
		if underWay {
			finish()
		}
		stored, states = f.begin()
		finish()
		if !maps.Equal(part.stored, want) {
			t.Fatalf("stored %v; want %v", part.stored, want)
		}
	})
}

// began is the time at which the fake clock of synctest starts.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// run folds a scripted partition for the time span on the fake clock. If checkpoint is 0, folding
// waits for each commit.
func run(t *testing.T, part *script, checkpoint, span time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	New(Config{
		Partitions: 1, MaxStates: 16 * 999, Checkpoint: checkpoint,
		Take: func(context.Context, int) (store.Partition, error) { return part, nil },
	}).Run(ctx)
}

// TestIdleRenews checks that an idle partition writes its cursor again every minute.
func TestIdleRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &script{next: cars(0, silence)}
		run(t, part, 0, 3*renewAfter+time.Second)
		if len(part.commits) != 3 || part.commits[2] != (commit{after: 3 * renewAfter}) {
			t.Fatalf("got commits %+v, want one every minute", part.commits)
		}
	})
}

// TestCommit_AnnouncedSamplesLate checks that states wait only for minLinger if Waiting returns
// true but no sample comes.
func TestCommit_AnnouncedSamplesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &script{waiting: true, next: cars(1, silence)}
		run(t, part, 0, time.Second)
		if len(part.commits) != 1 || part.commits[0] != (commit{minLinger, 1, 1}) {
			t.Fatalf("got commits %+v, want one after %v", part.commits, minLinger)
		}
	})
}

// TestCheckpoint_CommitsAllAtShutdown checks that the states of two checkpoints, one of them in
// progress, are stored when the context ends, even if storing them takes more than a second.
func TestCheckpoint_CommitsAllAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10 * sliceStates
		part := &script{takes: 50 * time.Millisecond}
		seq := uint64(0)
		part.next = func(ctx context.Context) (uint64, []vehicle.Sample, error) {
			if seq == 2 || seq == 1 && time.Since(began) < time.Minute {
				return 0, nil, silence(ctx)
			}
			seq++
			samples := make([]vehicle.Sample, n)
			for i := range samples {
				samples[i] = sampleOf(vehicle.ID(fmt.Sprint("car", i)), vehicle.UnixMilli(seq))
			}
			return seq, samples, nil
		}
		run(t, part, time.Minute, time.Minute+time.Second)
		last := part.commits[len(part.commits)-1]
		if last.seq != 2 || part.stored["car0"].Time != 2 || last.after < time.Minute+1500*time.Millisecond {
			t.Fatalf("last commit %+v, want one with the cursor at 2; all: %+v", last, part.commits)
		}
	})
}

// TestCheckpoint_CommitsAtShutdownInBacklog checks that the folded states are stored when the
// context ends while more samples wait to be folded, as after a time of overload.
func TestCheckpoint_CommitsAtShutdownInBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seq := uint64(0)
		part := &script{next: func(context.Context) (uint64, []vehicle.Sample, error) {
			time.Sleep(time.Millisecond) // on the fake clock
			seq++
			return seq, []vehicle.Sample{sampleOf("carA", vehicle.UnixMilli(seq))}, nil
		}}
		run(t, part, time.Minute, time.Second)
		if n := len(part.commits); n != 1 || part.commits[0].seq != seq-1 || part.commits[0].after > 1100*time.Millisecond {
			t.Fatalf("got commits %+v after %d samples, want one at the end, without the last sample", part.commits, seq)
		}
	})
}

// TestStateRequest_AnsweredFromMemory checks that the owner of a partition answers a request for a
// vehicle's state from its memory if the state is not stored yet, and stores nothing for that.
func TestStateRequest_AnsweredFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*vehicle.State
		asked := []vehicle.ID{"car1", "unknown"}
		part := &script{next: cars(1, func(ctx context.Context) error {
			if len(asked) == 0 {
				return silence(ctx)
			}
			id := asked[0]
			asked = asked[1:]
			return &store.StateRequest{Vehicle: id, Reply: func(s *vehicle.State) { got = append(got, s) }}
		})}
		run(t, part, time.Minute, time.Second)
		if len(got) != 2 || got[0] == nil || got[0].Time == 0 || got[1] != nil {
			t.Errorf("states: got %+v, want that of the car and nil", got)
		}
		if len(part.commits) != 1 || part.commits[0].after != time.Second {
			t.Errorf("commits: got %+v, want only the one at the end", part.commits)
		}
	})
}

// cars returns a Next function that returns one sample of each of n cars, in groups of at most 999
// samples with one sequence each. After that it calls last and returns its error.
func cars(n int, last func(context.Context) error) func(context.Context) (uint64, []vehicle.Sample, error) {
	var seq uint64
	return func(ctx context.Context) (uint64, []vehicle.Sample, error) {
		if n == 0 {
			return 0, nil, last(ctx)
		}
		seq++
		samples := make([]vehicle.Sample, min(n, 999))
		for i := range samples {
			samples[i] = sampleOf(vehicle.ID(fmt.Sprint("car", n-i)), 1)
		}
		n -= len(samples)
		return seq, samples, nil
	}
}

// silence waits until the context ends, as Next does if no sample comes.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestCheckpointInSlices checks that a checkpoint is stored in slices, spread over half of its
// interval, and that only the last slice moves the cursor.
func TestCheckpointInSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2 * sliceStates
		part := &script{next: cars(n, silence)}
		run(t, part, time.Minute, 2*time.Minute-time.Second)
		want := []commit{{time.Minute, 0, sliceStates}, {75 * time.Second, 1, sliceStates}}
		if !slices.Equal(part.commits, want) || len(part.stored) != n {
			t.Fatalf("got commits %+v, want %+v", part.commits, want)
		}
	})
}

// TestFoldsDuringCheckpoint checks that while a checkpoint is being stored, folding continues from
// its states in memory, without reading them from the store.
func TestFoldsDuringCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &script{takes: 5 * time.Second}
		at := vehicle.UnixMilli(0)
		part.next = func(ctx context.Context) (uint64, []vehicle.Sample, error) {
			select {
			case <-time.After(time.Duration(at+1)*time.Second - time.Since(began)):
				at++
				return uint64(at), []vehicle.Sample{sampleOf("carA", at)}, nil
			case <-ctx.Done():
				return 0, nil, ctx.Err()
			}
		}
		run(t, part, 10*time.Second, 100*time.Second+time.Millisecond)
		if at != 100 || part.reads != 1 {
			t.Errorf("%d samples in 100 s, %d states read; want 100 and 1", at, part.reads)
		}
		stored, want := part.stored["carA"], vehicle.State{}
		for i := range stored.Time {
			want = vehicle.Observe(want, sampleOf("carA", i+1))
		}
		if stored.Time < 80 || stored != want {
			t.Errorf("stored as of %d, correct: %v; want at least 80, true", stored.Time, stored == want)
		}
	})
}

// TestSettleDuringCheckpoint checks that a request to settle skips the pauses of a checkpoint.
func TestSettleDuringCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10 * sliceStates
		asked := false
		part := &script{next: cars(n, func(ctx context.Context) error {
			if time.Since(began) < time.Minute || asked {
				return silence(ctx)
			}
			asked = true
			return store.ErrSettle
		})}
		run(t, part, time.Minute, time.Minute+time.Second)
		last := part.commits[len(part.commits)-1]
		if !asked || len(part.stored) != n || last.seq == 0 || last.after != time.Minute {
			t.Fatalf("asked: %v; %d states stored, want %d; commits %+v", asked, len(part.stored), n, part.commits)
		}
	})
}

// TestCommit_VehicleNeverSilent checks that the states of a vehicle that reports all the time are
// still stored. They must wait for a larger commit no longer than the previous commit took, and
// never longer than maxLinger.
func TestCommit_VehicleNeverSilent(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		most  time.Duration // maximum time between two commits, with a sample every millisecond
	}{
		{0, 5 * time.Millisecond},
		{20 * time.Millisecond, 45 * time.Millisecond},
		{time.Second, time.Second + maxLinger + 5*time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			part := &script{waiting: true, takes: c.takes}
			seq := uint64(0)
			part.next = func(ctx context.Context) (uint64, []vehicle.Sample, error) {
				select {
				case <-ctx.Done():
					return 0, nil, ctx.Err()
				case <-time.After(time.Millisecond):
					seq++
					return seq, []vehicle.Sample{sampleOf("carA", vehicle.UnixMilli(seq))}, nil
				}
			}
			run(t, part, 0, 10*time.Second)
			n := len(part.commits)
			if n < 5 {
				t.Fatalf("commits of %v: %d in 10 s, want at least 5", c.takes, n)
			}
			for i := 2; i < n; i++ { // the states waited for the duration of the previous commit
				if d := part.commits[i].after - part.commits[i-1].after; d < c.takes || d > c.most {
					t.Fatalf("commit %d came %v after the previous one, want %v to %v", i, d, c.takes, c.most)
				}
			}
		})
	}
}

// BenchmarkPackedStates fills a memory with full states and reports what a vehicle takes.
func BenchmarkPackedStates(b *testing.B) {
	const vehicles = 100_000
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	state := roadtest.State(b)
	for b.Loop() {
		before := heap()
		p := newPackedStates(1 << 30)
		for v := range 3 * vehicles {
			p.put(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS55%06d", v%vehicles)), &state)
		}
		b.ReportMetric((heap()-before)/vehicles, "bytes/vehicle")
		runtime.KeepAlive(p)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3/vehicles, "ns/put")
}

// TestLoad_Once checks that states that are not in memory are loaded at once, each for its vehicle.
func TestLoad_Once(t *testing.T) {
	const n = store.MaxLoad
	part, f := new(script), newFolding((*vehicle.State).Fold, n, 1)
	part.stored = make(map[vehicle.ID]vehicle.State)
	var samples []vehicle.Sample
	for v := range n {
		x := sampleOf(vehicle.ID(fmt.Sprintf("car%d", v)), 1)
		samples = append(samples, x, x)
		if v%3 == 0 {
			part.stored[x.Vehicle] = vehicle.Observe(vehicle.State{}, x)
		}
	}
	want := []int{n}
	if read := fold(t, f, part, 1, samples...); read != n || !slices.Equal(part.loads, want) {
		t.Errorf("%d states read in loads of %v, want %d in loads of %v", read, part.loads, n, want)
	}
	for id, is := range f.touched {
		if known, ok := part.stored[id]; is.dirty == ok || ok && is.state != known {
			t.Errorf("%s: got %+v", id, is)
		}
	}
}

// TestFoldsAsConfigured checks that samples are folded by the configured function. In place of a
// state from the future, which is reset, the function must receive the zero state.
func TestFoldsAsConfigured(t *testing.T) {
	var saw []vehicle.State
	f := newFolding(func(s *vehicle.State, x *vehicle.Sample) bool {
		saw = append(saw, *s)
		s.Fold(x)
		s.Way.Count++
		return true
	}, 10, 10)
	now := time.Unix(1e9, 0)
	future := vehicle.Observe(vehicle.State{}, sampleOf("ahead", vehicle.At(now.Add(time.Hour))))
	future.Way.Count = 5
	part := &script{storedAt: now, stored: map[vehicle.ID]vehicle.State{"ahead": future}}
	fold(t, f, part, 1, sampleOf("carA", vehicle.At(now)), sampleOf("ahead", vehicle.At(now)))
	for _, id := range []vehicle.ID{"carA", "ahead"} {
		if n := f.touched[id].state.Way.Count; n != 1 {
			t.Errorf("%s: the fold was called on a way of %d steps, want 1", id, n)
		}
	}
	if want := (vehicle.State{}); len(saw) != 2 || saw[0] != want || saw[1] != want {
		t.Errorf("the fold received states %+v, want two zero states", saw)
	}
}

// Answer does nothing, because the tests look at commits.
func (*script) Answer(vehicle.ID, *vehicle.State) {}
