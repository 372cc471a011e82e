package derive

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// TestPackedStates checks that a memory returns the last state of each vehicle, whatever its size and
// that of the buckets, and takes each changed state once.
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
			p.put(id, &s)
			want[id], changed[id] = s, s
			for id, want := range want {
				if got, err := p.get(id); err != nil || got != want {
					t.Fatalf("%s: got %+v, %v, want %+v", id, got, err, want)
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
		if got, err := p.get("unknown"); err != nil || got != (vehicle.State{}) {
			t.Fatalf("got %+v, %v for a vehicle without a state", got, err)
		}
	})
}
