package derive

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/vehicle"
)

// TestPackedStates checks that a memory returns the last state of each vehicle until it is dropped,
// whatever its size and that of the buckets, and takes each changed state once.
func TestPackedStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, want := newPackedStates(500), make(map[vehicle.ID]vehicle.State)
		changed := make(map[vehicle.ID]vehicle.State)
		for range rapid.IntRange(1, 300).Draw(t, "uses") {
			id := vehicle.ID(fmt.Sprint("car", rapid.IntRange(0, 40).Draw(t, "id")))
			s := vehicle.State{Time: vehicle.UnixMilli(rapid.Int64().Draw(t, "time"))}
			for i := range rapid.IntRange(0, vehicle.NumSignals).Draw(t, "signals") {
				s.Latest[i] = vehicle.Reading{Value: 1, Time: s.Time}
			}
			if rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
				p.drop(id)
				delete(want, id)
				delete(changed, id)
			} else {
				p.put(id, &s)
				want[id], changed[id] = s, s
			}
			for _, id := range append(slices.Collect(maps.Keys(want)), id) {
				if got, err := p.get(id); err != nil || got != want[id] {
					t.Fatalf("%s: got %+v, %v, want %+v", id, got, err, want[id])
				}
			}
			if rapid.IntRange(0, 30).Draw(t, "take") > 0 {
				continue
			}
			got := make(map[vehicle.ID]vehicle.State)
			for next := 0; next < len(p.buckets); {
				var states map[vehicle.ID][]byte
				states, next = p.take(next, 1)
				for id, packed := range states {
					got[id], _ = codec.DecodeState(packed)
				}
			}
			if !maps.Equal(got, changed) || p.changed != 0 {
				t.Fatalf("took %v, and %d are left; want %v", got, p.changed, changed)
			}
			clear(changed)
		}
	})
}

// BenchmarkPackedStates puts full states of new vehicles into a memory, and then replaces each. It
// reports the processor time of a put and what a vehicle takes.
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
		before, p := heap(), newPackedStates(bucketBytes)
		for _, round := range []string{"new", "known"} {
			began := cpu()
			for v := range vehicles {
				p.put(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS55%06d", v)), &state)
			}
			b.ReportMetric(float64(cpu()-began)/vehicles, "cpu-ns/"+round)
		}
		b.ReportMetric((heap()-before)/vehicles, "bytes/vehicle")
		runtime.KeepAlive(p)
	}
}
