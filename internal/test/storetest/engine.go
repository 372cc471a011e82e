package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func sample(vid string, ms int64, speed float64) vehicle.Sample {
	return Speed(vehicle.ID(vid), ms, speed)
}

// readAll reads at least n samples, with sequences that ascend, and returns the last sequence.
func readAll(t *testing.T, p store.Partition, n int) (last uint64, all []vehicle.Sample) {
	t.Helper()
	ctx := testkit.Context(t)
	for len(all) < n {
		g, err := p.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d samples: got %v, want another", len(all), n, err)
		}
		if g.Seq <= last || g.Stored.IsZero() {
			t.Fatalf("got sequence %d, stored %s, want one above %d, and a time", g.Seq, g.Stored, last)
		}
		last, all = g.Seq, append(all, g.Samples...)
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
					t.Errorf("Append: got %v, want no error", err)
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
				t.Fatalf("%s: got the sample of %d after %d, want them in order", x.Vehicle, x.Time, got[x.Vehicle])
			}
			got[x.Vehicle] = int64(x.Time)
			i := int64(x.Time) - 1000
			if v, _ := x.Value(signal.Speed); v != float32(i%200) || x.Source != uint32(i%3) || x.Crowd != (i%2 == 0) {
				t.Fatalf("%s at %d: got %v, %d %t, want %d, %d", x.Vehicle, x.Time, v, x.Source, x.Crowd, i%200, i%3)
			}
		}
	}
	if total < writers*each {
		t.Fatalf("got %d samples, want %d", total, writers*each)
	}
}

func piece(at int64, ids ...string) (p store.Piece) {
	for _, id := range ids {
		s := vehicle.Observe(vehicle.State{}, sample(id, at, 50))
		e := store.Entry{Vehicle: vehicle.ID(id), State: codec.AppendState(nil, &s)}
		p.Entries = store.AppendEntry(p.Entries, e)
	}
	return p
}

func save(ctx context.Context, part store.Partition, c store.Checkpoint, erase bool, pieces ...store.Piece) error {
	_, err := part.Save(ctx, c, slices.Values(pieces), erase)
	return err
}

func storedTimes(t *testing.T, e store.Engine, p int, part store.Partition) map[vehicle.ID]signal.UnixMilli {
	t.Helper()
	got := make(map[vehicle.ID]signal.UnixMilli)
	all, _ := part.Stored()
	err := store.ReadStates(t.Context(), e, p, all, func(piece store.Piece) error {
		return store.DecodeEntries(piece.Entries, func(x store.Entry) error {
			s, err := codec.DecodeState(x.State)
			got[x.Vehicle] = s.Time
			return err
		})
	})
	testkit.NoError(t, err)
	return got
}

// An owner gets the states of the last checkpoints and the telemetry after them. An older
// checkpoint can be read instead, and erasing leaves nothing else.
func checkpointsKept(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	const vid = "carA"
	p := codec.PartitionOf(vid, e.Partitions())
	for i := range 3 {
		testkit.NoError(t, e.Append(ctx, []vehicle.Sample{sample(vid, int64(1000*(i+1)), 50)}))
	}
	part := takeAs(t, e, p, "first")
	g, err := part.Next(ctx)
	testkit.NoError(t, err)
	c := store.Checkpoint{Number: 1, First: 1, Owner: 7, Seq: g.Seq}
	testkit.NoError(t, save(ctx, part, c, false, piece(1000, vid), piece(1, "carB")))
	next := store.Checkpoint{Number: 2, First: 1, Owner: 7, Seq: g.Seq}
	testkit.NoError(t, save(ctx, part, next, false, piece(2, "carB", "carC")))
	part.Close()

	part = takeAs(t, e, p, "second")
	c.Pieces, c.Bytes, next.Pieces, next.Bytes = 2, 105, 1, 104
	got, newest := part.Stored()
	if !slices.Equal(got, []store.Checkpoint{c, next}) {
		t.Fatalf("got checkpoints %+v, want %+v", got, []store.Checkpoint{c, next})
	}
	want := map[vehicle.ID]signal.UnixMilli{vid: 1000, "carB": 2, "carC": 2}
	if got := storedTimes(t, e, p, part); !maps.Equal(got, want) {
		t.Fatalf("got states of %v, want %v", got, want)
	}
	last, rest := readAll(t, part, 2)
	if rest[0].Time != 2000 || rest[1].Time != 3000 || newest != last {
		t.Fatalf("after the checkpoint: got samples of %v and %v up to %d, want 2000 and 3000 up to %d",
			rest[0].Time, rest[1].Time, newest, last)
	}
	testkit.NoError(t, part.Seek(ctx, store.Checkpoint{}))
	if _, all := readAll(t, part, 3); all[0].Time != 1000 {
		t.Fatalf("after Seek: got a sample of %v, want 1000", all[0].Time)
	}
	alone := store.Checkpoint{Number: 3, First: 3, Owner: 8, Seq: last}
	testkit.NoError(t, save(ctx, part, alone, true, piece(3, "carC")))
	chunks := 0
	err = e.Scan(ctx, codec.States, []string{"chunk." + strconv.Itoa(p) + ".*.*"}, func(store.Record) error { chunks++; return nil })
	if err != nil || chunks != 1 {
		t.Errorf("after erasing: got %d pieces, %v; want 1", chunks, err)
	}
	part = takeAs(t, e, p, "third")
	defer part.Close()
	if got := storedTimes(t, e, p, part); !maps.Equal(got, map[vehicle.ID]signal.UnixMilli{"carC": 3}) {
		t.Errorf("after erasing: got states of %v, want one of carC", got)
	}
}

// A partition whose newest checkpoint is damaged is folded again from the one before.
func checkpointDamaged(t *testing.T, open Open) {
	n := started(t, open, store.Config{})
	n.Drive(t, 1000, "carA", "carB")
	p := codec.PartitionOf("carA", n.Partitions())
	_, err := n.Ask(t.Context(), p, &store.Question{Kind: store.AskCheckpoint})
	testkit.NoError(t, err)
	n.Drive(t, 2000, "carA")
	r, err := n.Ask(t.Context(), p, &store.Question{Kind: store.AskCheckpoint})
	testkit.NoError(t, err)
	want, _ := n.StateOf(t, "carA")
	storeRecord(t, n.Engine, codec.States, r.Checkpoint.Subject(p, 0), []byte("not a piece"))
	again := n.restarted(t)
	if got, ok := again.StateOf(t, "carA"); !ok || got != want {
		t.Errorf("got found %v, state %+v; want %+v", ok, got, want)
	}
}

func fencing(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	const racers, rounds = 4, 25
	parts := make([]store.Partition, racers)
	for round := range rounds {
		// All racers take the partition one after the other, then store concurrently. The last to
		// take it owns it.
		for i := range parts {
			parts[i] = takeAs(t, e, 0, fmt.Sprintf("owner%d", i))
		}
		errs := make([]error, racers)
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				c := store.Checkpoint{Number: uint64(round + 1), First: uint64(round + 1), Owner: uint64(i)}
				errs[i] = save(ctx, parts[i], c, false, piece(1, fmt.Sprintf("by%d", i)))
			})
		}
		wg.Wait()
		for i, err := range errs {
			if last := i == racers-1; last && err != nil || !last && !errors.Is(err, store.ErrFenced) {
				t.Fatalf("round %d: checkpoint of owner %d: got %v, want success only of the last owner", round, i, err)
			}
		}
	}
	all, _ := takeAs(t, e, 0, "reader").Stored()
	for _, c := range all {
		if c.Owner != racers-1 {
			t.Errorf("got a checkpoint of owner %d, who was fenced, want those of %d alone", c.Owner, racers-1)
		}
	}
	if n := len(all); n != 2 || all[n-1].Number != rounds { // each had all states, so that one before it is enough
		t.Errorf("got checkpoints %+v, want those of the last two rounds", all)
	}
}

// A node cannot take a partition from a live owner, but gets it after a release, and continues from
// the owner's last checkpoint.
func releasing(t *testing.T, e store.Engine) {
	ctx := testkit.Context(t)
	asked := ""
	polite := func(holder string) bool { asked = holder; return holder == "" }
	first, err := e.Take(ctx, 0, "first", Empty, polite)
	if err != nil || asked != "" {
		t.Fatalf("taking a free partition: got owner %q, error %v, want neither", asked, err)
	}
	c := store.Checkpoint{Number: 1, First: 1}
	testkit.NoError(t, save(ctx, first, c, false, piece(5, "carA")))
	if _, err := e.Take(ctx, 0, "second", Empty, polite); !errors.Is(err, store.ErrHeld) || asked != "first" {
		t.Fatalf("taking an owned partition: got owner %q, error %v; want %v", asked, err, store.ErrHeld)
	}
	testkit.NoError(t, e.Release(ctx, 0, "second"))
	testkit.NoError(t, save(ctx, first, store.Checkpoint{}, false))
	testkit.NoError(t, e.Release(ctx, 0, "first"))
	second, err := e.Take(ctx, 0, "second", Empty, polite)
	testkit.NoError(t, err)
	if err := save(ctx, first, store.Checkpoint{}, false); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("checkpoint after a release: got %v, want %v", err, store.ErrFenced)
	}
	if err := e.Release(ctx, 0, "first"); err != nil {
		t.Fatalf("released twice: got %v, want no error", err)
	}
	if got := storedTimes(t, e, 0, second); !maps.Equal(got, map[vehicle.ID]signal.UnixMilli{"carA": 5}) {
		t.Fatalf("got states of %v, want that of carA", got)
	}
	testkit.NoError(t, save(ctx, second, store.Checkpoint{}, false))
}

// A node gets the answers from before it has started, and then every change.
func answersFollow(t *testing.T, open Open) {
	n := started(t, open, store.Config{})
	n.Drive(t, 1000, "before")
	n = n.restarted(t)
	if !n.Knows("before") {
		t.Error("after the start: got no vehicle from before, want it known")
	}
	n.Drive(t, 2000, "after")
	testkit.Await(t, "the node knows the other vehicle", func() bool { return n.Knows("after") })
}

// A backup contains every vehicle, even if many states are replaced in the meantime.
func backupOfAll(t *testing.T, open Open) {
	ctx, stop := context.WithCancel(testkit.Context(t))
	const vehicles, backups = 1000, 10
	n := started(t, open, store.Config{})
	var cars []vehicle.ID
	for i := range vehicles {
		cars = append(cars, vehicle.ID(fmt.Sprintf("car%d", i)))
	}
	n.Drive(t, 1, cars...)
	var storing sync.WaitGroup
	defer storing.Wait()
	defer stop()
	storing.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 2))
		for at := int64(2); ctx.Err() == nil; at++ {
			batch := make([]vehicle.Sample, 1+rnd.IntN(400))
			for i := range batch {
				batch[i] = Speed(cars[rnd.IntN(vehicles)], at, 10)
			}
			if err := n.Append(ctx, batch); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrOverloaded) {
				t.Errorf("Append: got %v, want no error but an overload", err)
				return
			}
		}
	})
	subjects := regexp.MustCompile(`state\.\d+\.car\d+`)
	for i := range backups {
		seen := make(map[string]bool)
		for _, subject := range subjects.FindAll(BackupOf(t, n.Service), -1) {
			seen[string(subject)] = true
		}
		if len(seen) != vehicles {
			t.Fatalf("backup %d: got %d vehicles, want %d", i, len(seen), vehicles)
		}
	}
}
