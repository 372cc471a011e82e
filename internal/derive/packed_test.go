package derive

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/vehicle"
)

// TestPackedStates checks that a memory returns the last state of each vehicle, whatever its size,
// and loses none while there is room.
func TestPackedStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, want := newPackedStates(bucketBytes), make(map[vehicle.ID]vehicle.State)
		for range rapid.IntRange(1, 300).Draw(t, "uses") {
			id := vehicle.ID(fmt.Sprint("car", rapid.IntRange(0, 40).Draw(t, "id")))
			s := vehicle.State{Time: vehicle.UnixMilli(rapid.Int64().Draw(t, "time"))}
			for i := range rapid.IntRange(0, vehicle.NumSignals).Draw(t, "signals") {
				s.Latest[i] = vehicle.Reading{Value: 1, Time: s.Time}
			}
			p.put(id, &s)
			want[id] = s
			for id, want := range want {
				var got vehicle.State
				if !p.get(id, &got) || got != want {
					t.Fatalf("%s: got %+v, want %+v", id, got, want)
				}
			}
		}
		if p.get("unknown", new(vehicle.State)) {
			t.Fatal("got a state of a vehicle without one")
		}
	})
}

// TestPackedStates_Full checks that a memory in which not all vehicles fit stays within its limit,
// and still has many of them when they come in turn.
func TestPackedStates_Full(t *testing.T) {
	const size = 4 * bucketBytes
	p, found := newPackedStates(size), 0
	const vehicles, rounds = 24_000, 5
	for n := range rounds * vehicles {
		id, s := vehicle.ID(fmt.Sprint("car", n%vehicles)), vehicle.State{Time: vehicle.UnixMilli(n%vehicles + 1)}
		for i := range s.Latest {
			s.Latest[i] = vehicle.Reading{Value: float32(n), Time: s.Time}
		}
		var got vehicle.State
		if p.get(id, &got) {
			if found++; got.Time != s.Time {
				t.Fatalf("%s: got the state of %d, want that of %d", id, got.Time, s.Time)
			}
		}
		p.put(id, &s)
	}
	used := 0
	for i := range p.buckets {
		used += len(p.buckets[i].arena) + 4*len(p.buckets[i].index)
	}
	if used > size+size/4 {
		t.Errorf("%d bytes are used, want at most a quarter above %d", used, size)
	}
	if share := float64(found) / (rounds - 1) / vehicles; share < .2 {
		t.Errorf("%.2f of the states were found, want at least a fifth", share)
	} else {
		t.Logf("%.2f of the states were found", share)
	}
}
