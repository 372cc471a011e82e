//go:build !race

package derive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// hand can fail in the next Save.
type hand struct {
	store.Partition
	fail    bool // the next Save fails, or its response is lost
	between func()
}

func (h *hand) Save(
	ctx context.Context, c store.Checkpoint, pieces iter.Seq[store.Piece], erase bool,
) (store.Checkpoint, error) {
	fails := h.fail
	h.fail = false
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	is, err := h.Partition.Save(ctx, c, func(yield func(store.Piece) bool) {
		if pieces == nil {
			return
		}
		for piece := range pieces {
			if n++; fails && n == 2 {
				cancel()
			}
			if !yield(piece) {
				return
			}
			h.between()
		}
	}, erase)
	if fails {
		return is, ErrInjected
	}
	return is, err
}

// The logs have any clock errors of cars and of the machine. Checkpoints of any kind are stored,
// also in vain, vehicles are forgotten, erased and allowed, and each crash damages any of the newest
// checkpoints. States that are read again equal a plain fold of the log up to the same place.
func TestFolding_EndsInTheSameBytes(t *testing.T) {
	const partitions, vehicles, groups = 200, 7, 45
	ctx, clock := t.Context(), testkit.NewClock(time.UnixMilli(1e12))
	var e store.Engine // has as many logs as partitions
	steps := []time.Duration{time.Second, time.Second, 20 * time.Second, 10 * time.Minute, -10 * time.Minute}
	errs := []time.Duration{0, 0, 0, -time.Hour, 25 * time.Second, 2 * time.Minute, 24 * time.Hour}
	p, outer := -1, t
	rapid.Check(t, func(t *rapid.T) {
		must := func(err error) {
			if err != nil {
				t.Fatalf("the store: got %v, want no error", err)
			}
		}
		if p = (p + 1) % partitions; p == 0 {
			c := local.Config{DataDir: outer.TempDir(), SyncInterval: time.Hour}
			c.Partitions, c.Now, c.Retention = partitions, clock.Now, 1e6*time.Hour
			opened, err := local.Open(ctx, c)
			e = testkit.Opened(outer, opened, err)
		}
		var ids []vehicle.ID
		for i := 0; len(ids) < vehicles; i++ {
			if id := vehicle.ID(fmt.Sprint("car", i)); codec.PartitionOf(id, partitions) == p {
				ids = append(ids, id)
			}
		}
		sample := rapid.Custom(func(t *rapid.T) (x vehicle.Sample) {
			x.Vehicle = rapid.SampledFrom(ids).Draw(t, "vehicle")
			x.Time = signal.At(clock.Now().Add(rapid.SampledFrom(errs).Draw(t, "error")))
			_ = x.Set(signal.Speed, rapid.Float64Range(0, 200).Draw(t, "speed"))
			if rapid.IntRange(0, 5).Draw(t, "load") == 0 { // a state remembers it until the next one
				_ = x.Set(signal.EngineLoad, 50) // is possible
			}
			return x
		})
		for range groups {
			clock.Advance(rapid.SampledFrom(steps).Draw(t, "step"))
			must(e.Append(ctx, rapid.SliceOfN(sample, 1, 4).Draw(t, "samples")))
		}
		covered, upTo := make(map[vehicle.ID]bool), make(map[vehicle.ID]uint64) // forgotten, and allowed again since
		forgotten := func(id vehicle.ID, seq uint64) bool { return covered[id] || seq <= upTo[id] }
		gone, trimmed := rapid.Bool().Draw(t, "gone"), false
		config := &New(Config{
			Records: e, bucketBytes: 150, pieceBytes: 200, Gone: func(vehicle.ID) bool { return gone },
			Covers: func(id vehicle.ID) (bool, error) { return covered[id], nil },
		}).config
		var log []store.Group
		var f *folding
		var part *hand
		crash := func(damage int) {
			if f != nil {
				f.end()
			}
			f = newFolding(config)
			took, err := e.Take(ctx, p, "node", f.reply, store.Anyone)
			must(err)
			if log == nil {
				log, err = Log(took)
				must(err)
			}
			is, _ := took.Stored()
			for _, c := range is[len(is)-min(len(is), damage):] {
				if !trimmed { // or the telemetry since could not be folded again
					must(Spoil(e, p, c))
				}
			}
			part = &hand{Partition: took}
			f.part = part
			must(f.load(ctx, p))
			next := func() {
				g, err := part.Next(ctx)
				must(err)
				must(f.apply(g))
			}
			for f.seq < f.aheadTo {
				next()
			}
			part.between = func() {
				if f.seq < f.newest && rapid.Bool().Draw(t, "between") {
					next()
				}
			}
			got := make(Packed)
			for r := range f.states.all {
				if len(stateOf(r)) > 0 {
					got[vehicle.ID(vidOf(r))] = string(stateOf(r))
				}
			}
			if want := Plain(log, f.seq, forgotten); !maps.Equal(got, want) {
				t.Fatalf("as of %d of %d read %q, want %q", f.seq, f.newest, got, want)
			}
		}
		crash(0)
		store := func(full, erase bool) {
			before := part.fail
			if _, err := f.checkpoint(ctx, atOnce, full, erase); err != nil && !(before && errors.Is(err, ErrInjected)) {
				t.Fatalf("the checkpoint: got %v, want no error but the injected one", err)
			}
		}
		for f.seq < f.newest {
			switch rapid.IntRange(0, 40).Draw(t, "action") {
			case 0:
				crash(rapid.IntRange(0, 3).Draw(t, "damage"))
			case 1:
				store(true, false)
			case 2:
				store(true, true)
			case 3:
				part.fail = true
			case 4:
				id := rapid.SampledFrom(ids).Draw(t, "forgotten")
				covered[id] = true
				f.drop(id)
			case 5:
				between := part.between
				part.fail, part.between = false, func() {} // no sample of a forgotten vehicle is on its way
				store(true, true)
				part.between = between
				_, err := e.TrimTo(ctx, []uint64{f.last.Seq})
				must(err)
				trimmed = true
				for id := range covered {
					upTo[id] = f.last.Seq
				}
				clear(covered)
			default:
				g, err := part.Next(ctx)
				must(err)
				must(f.apply(g))
				store(false, false)
			}
		}
		part.fail = false
		store(false, false)
		crash(0)
		defer f.end()
		if f.seq != f.newest {
			t.Fatalf("the last checkpoint is of %d, want %d", f.seq, f.newest)
		}
	})
}

// A memory has the last state of each vehicle until it is dropped, whatever its size and that of
// the buckets, and so have the pieces of the last CheckpointCycle checkpoints.
func TestPackedStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, want := newPackedStates(1, 500, 0), make(map[vehicle.ID]vehicle.State)
		defer p.end()
		var stored [][][]byte // pieces by checkpoint
		for range rapid.IntRange(1, 300).Draw(t, "uses") {
			n := rapid.IntRange(0, 40).Draw(t, "id")
			id := vehicle.ID(fmt.Sprintf("%02d", n) + strings.Repeat("x", n/40*(vehicle.MaxReportingID-2)))
			s := vehicle.State{Time: signal.UnixMilli(rapid.Int64Range(1, 1<<50).Draw(t, "time"))}
			for i := range rapid.IntRange(0, signal.Num).Draw(t, "signals") {
				s.Latest[i] = signal.Reading{Value: 1, Time: s.Time}
			}
			p.set(id, codec.AppendState(nil, &s), uint16(n), 1)
			want[id] = s
			for _, id := range []vehicle.ID{id, "unknown"} {
				if got, err := p.get(id); err != nil || got != want[id] {
					t.Fatalf("%s: got %+v, %v, want %+v", id, got, err, want[id])
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "checkpoint") > 0 {
				continue
			}
			full := len(stored) == 0 || rapid.IntRange(0, 20).Draw(t, "full") == 0
			if full {
				stored = nil
			}
			most := rapid.SampledFrom([]int{0, 0, 0, 4}).Draw(t, "gone") // of a full checkpoint the first few
			var pieces [][]byte
			for next, done := 0, false; !done; {
				var piece []byte
				piece, next, done = p.piece(next, 400, uint64(len(stored)), full, func(r []byte) bool {
					if !full || int(dayOf(r)) >= most {
						return false
					}
					delete(want, vehicle.ID(vidOf(r)))
					return true
				})
				pieces = append(pieces, piece)
			}
			stored = append(stored, pieces)
			got := make(map[vehicle.ID]vehicle.State)
			for _, pieces := range stored[max(0, len(stored)-store.CheckpointCycle):] {
				for _, piece := range pieces {
					err := store.DecodeEntries(piece, func(e store.Entry) (err error) {
						got[e.Vehicle], err = codec.DecodeState(e.State)
						return err
					})
					if err != nil {
						t.Fatalf("the stored states: got %v, want no error", err)
					}
				}
			}
			if vehicles, changed := p.count(); !maps.Equal(got, want) || changed != 0 || vehicles != len(want) {
				t.Fatalf("stored %v; want %v; %d are changed", got, want, changed)
			}
		}
	})
}

const benchCars = 100_000

func benchCar(v int) vehicle.ID { return vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS55%06d", v)) }

// One operation puts a new vehicle's full state into a memory, and replaces it.
func BenchmarkPackedStates(b *testing.B) {
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	state := roadtest.State(b)
	for b.Loop() {
		before, p := heap(), newPackedStates(1, bucketBytes, 0)
		for _, round := range []string{"new", "known"} {
			began := testkit.ProcessorTime()
			for v := range benchCars {
				p.set(benchCar(v), codec.AppendState(nil, &state), 0, 1)
			}
			b.ReportMetric(float64(testkit.ProcessorTime()-began)/benchCars, "cpu-ns/"+round)
		}
		b.ReportMetric((heap()-before+float64(len(p.slabs)*slabBytes))/benchCars, "bytes/vehicle")
		p.end()
	}
}

// 100,000 full states are stored, after a change of all or of a tenth, and loaded.
func BenchmarkCheckpoint(b *testing.B) {
	ctx, state := b.Context(), roadtest.State(b)
	opened, err := local.Open(ctx, local.Config{DataDir: b.TempDir()})
	e := testkit.Opened(b, opened, err)
	take := func() *folding {
		f := newFolding(&New(Config{Records: e}).config)
		f.part, err = e.Take(ctx, 0, "bench", f.reply, store.Anyone)
		testkit.NoError(b, err)
		testkit.NoError(b, f.load(ctx, 0))
		return f
	}
	f := take()
	measure := func(name string, changed int, do func() error) {
		b.Run(name, func(b *testing.B) {
			used := time.Duration(0)
			for b.Loop() {
				for v := range changed {
					f.states.set(benchCar(v), codec.AppendState(nil, &state), 0, 1)
				}
				began := testkit.ProcessorTime()
				testkit.NoError(b, do())
				used += testkit.ProcessorTime() - began
			}
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/benchCars, "cpu-ns/state")
		})
	}
	store := func() error { _, err := f.checkpoint(ctx, atOnce, false, false); return err }
	measure("full", benchCars, store)
	measure("tenth", benchCars/10, store)
	measure("load", 0, func() error { f.end(); f = take(); return nil })
}
