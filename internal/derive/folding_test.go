package derive

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"carstate/internal/vehicle"
)

// script is a partition that says what a test makes it say. It stands in where
// the time matters that a real one would take.
type script struct {
	next    func(ctx context.Context) (uint64, []vehicle.Sample, error)
	waiting bool
	commits []commit
	err     error // of commits
}

type commit struct {
	after  time.Duration
	seq    uint64
	states int
}

func (s *script) States(context.Context, func(vehicle.ID, vehicle.State)) error { return nil }
func (s *script) Next(ctx context.Context) (uint64, []vehicle.Sample, error)    { return s.next(ctx) }
func (s *script) Waiting() bool                                                 { return s.waiting }
func (s *script) Close()                                                        {}

func (s *script) Commit(_ context.Context, seq uint64, states map[vehicle.ID]vehicle.State) error {
	if s.err != nil {
		return s.err
	}
	s.commits = append(s.commits, commit{time.Since(began), seq, len(states)})
	return nil
}

func sampleOf(id vehicle.ID, at vehicle.UnixMilli) vehicle.Sample {
	x := vehicle.Sample{Vehicle: id, Time: at}
	if err := x.Set(vehicle.Speed, 50); err != nil {
		panic(err)
	}
	return x
}

// A commit that failed leaves what is to be stored as it was.
func TestFailedCommitKeepsDirty(t *testing.T) {
	f := folding{states: map[vehicle.ID]vehicle.State{}, dirty: map[vehicle.ID]vehicle.State{}, limit: 10}
	f.observe(7, []vehicle.Sample{sampleOf("carA", 1), sampleOf("carB", 2)})
	want := maps.Clone(f.dirty)
	part := &script{err: errors.New("not now")}
	if err := f.commit(t.Context(), part); !errors.Is(err, part.err) {
		t.Fatal(err)
	}
	if !maps.Equal(f.dirty, want) || len(want) != 2 || f.seq != 7 {
		t.Fatalf("dirty is %v at %d; want %v at 7", f.dirty, f.seq, want)
	}
	part.err = nil
	if err := f.commit(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	if len(f.dirty) != 0 || f.seq != 0 || part.commits[0].states != 2 {
		t.Fatalf("after the commit: %v at %d", f.dirty, f.seq)
	}
}

// fits counts vehicles, not samples.
func TestFits(t *testing.T) {
	f := folding{states: map[vehicle.ID]vehicle.State{}, dirty: map[vehicle.ID]vehicle.State{}, limit: 3}
	f.observe(1, []vehicle.Sample{sampleOf("carA", 1), sampleOf("carB", 1)})
	for _, c := range []struct {
		ids  []vehicle.ID
		want bool
	}{
		{[]vehicle.ID{"carC"}, true},
		{[]vehicle.ID{"carA", "carA", "carB", "carC", "carC"}, true},
		{[]vehicle.ID{"carC", "carD"}, false},
	} {
		var samples []vehicle.Sample
		for _, id := range c.ids {
			samples = append(samples, sampleOf(id, 2))
		}
		if got := f.fits(samples); got != c.want {
			t.Errorf("%v: %v", c.ids, got)
		}
	}
}

// began is when synctest's clock starts.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// run folds a scripted partition for a time of the fake clock.
func run(t *testing.T, part *script, span time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	New(Config{
		Partitions: 1, MaxStates: 999,
		Take: func(context.Context, int) (Partition, error) { return part, nil },
	}).Run(ctx)
}

// An idle partition renews its cursor every minute.
func TestIdleRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &script{next: func(ctx context.Context) (uint64, []vehicle.Sample, error) {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}}
		run(t, part, 3*renewAfter+time.Second)
		if len(part.commits) != 3 || part.commits[2] != (commit{after: 3 * renewAfter}) {
			t.Fatalf("commits: %+v", part.commits)
		}
	})
}

// States do not wait for samples that were announced and never come.
func TestAnnouncedAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &script{waiting: true}
		first := true
		part.next = func(ctx context.Context) (uint64, []vehicle.Sample, error) {
			if first {
				first = false
				return 1, []vehicle.Sample{sampleOf("carA", 1)}, nil
			}
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}
		run(t, part, time.Second)
		if len(part.commits) != 1 || part.commits[0] != (commit{linger, 1, 1}) {
			t.Fatalf("commits: %+v", part.commits)
		}
	})
}

// A vehicle that never falls silent is seen all the same.
func TestNeverSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &script{waiting: true}
		seq := uint64(0)
		part.next = func(ctx context.Context) (uint64, []vehicle.Sample, error) {
			select {
			case <-ctx.Done():
				return 0, nil, ctx.Err()
			case <-time.After(10 * time.Millisecond):
				seq++
				return seq, []vehicle.Sample{sampleOf("carA", vehicle.UnixMilli(seq))}, nil
			}
		}
		run(t, part, 10*time.Second)
		if n := len(part.commits); n < 50 || n > 150 {
			t.Fatalf("%d commits in 10 s", n)
		}
	})
}
