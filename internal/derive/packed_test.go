package derive

import (
	"fmt"
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

// A memory has the last state of each vehicle until it is dropped, whatever its size and that of
// the buckets, and so have the pieces of the last CheckpointCycle checkpoints.
func TestPackedStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, want := newPackedStates(500, 0), make(map[vehicle.ID]vehicle.State)
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
						t.Fatal(err)
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
		before, p := heap(), newPackedStates(bucketBytes, 0)
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
		f.part, err = e.Take(ctx, 0, "bench", f, store.Anyone)
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
