package access_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

func TestVehicles(t *testing.T) {
	var none access.Vehicles
	set := access.VehicleSet("B", "A", "B")
	all := access.AllVehicles()
	for _, tt := range []struct {
		name string
		v    access.Vehicles
		all  bool
		len  int
		a, c bool
	}{
		{"none", none, false, 0, false, false},
		{"a set", set, false, 2, true, false},
		{"all", all, true, 0, true, true},
	} {
		if tt.v.All() != tt.all || tt.v.Len() != tt.len {
			t.Errorf("%s: got all %v, len %d; want %v, %d", tt.name, tt.v.All(), tt.v.Len(), tt.all, tt.len)
		}
		for id, want := range map[vehicle.ID]bool{"A": tt.a, "C": tt.c} {
			if got, inBytes := tt.v.Include(id), tt.v.IncludeBytes([]byte(id)); got != want || inBytes != want {
				t.Errorf("%s: got %s %t, in bytes %t; want %t", tt.name, id, got, inBytes, want)
			}
		}
	}
	if got := set.Sorted(); !slices.Equal(got, []vehicle.ID{"A", "B"}) {
		t.Errorf("the sorted set: got %v, want A and B", got)
	}
	if set.Include("a") {
		t.Error("a in the set of A and B: got true, want false")
	}
}

func TestVehiclesWithAndWithout(t *testing.T) {
	ids := rapid.SliceOf(rapid.SampledFrom([]vehicle.ID{"A", "B", "C", "D", "E"}))
	rapid.Check(t, func(t *rapid.T) {
		start, add, remove := ids.Draw(t, "start"), ids.Draw(t, "add"), ids.Draw(t, "remove")
		v := access.VehicleSet(start...)
		before := v.Sorted()
		more := v.With(add...)
		less := more.Without(remove...)
		if !slices.Equal(before, v.Sorted()) {
			t.Fatalf("the set after With and Without: got %v, want %v", v.Sorted(), before)
		}
		for _, id := range []vehicle.ID{"A", "B", "C", "D", "E"} {
			had := slices.Contains(start, id) || slices.Contains(add, id)
			if more.Include(id) != had || less.Include(id) != (had && !slices.Contains(remove, id)) {
				t.Fatalf("%v with %v: got %s %t, then without %v %t; want %t first", start, add, id, more.Include(id),
					remove, less.Include(id), had)
			}
		}
	})
}

func TestVehiclesZeroAndAll(t *testing.T) {
	var none access.Vehicles
	if !none.With("A").Include("A") {
		t.Error("A in nothing with A: got false, want true")
	}
	if v := none.Without("A"); v.All() || v.Len() != 0 {
		t.Errorf("nothing without A: got all %t, len %d; want false, 0", v.All(), v.Len())
	}
	if !access.AllVehicles().With("A").All() {
		t.Error("all with A: got a set, want all")
	}
	if !access.AllVehicles().Without("A").All() {
		t.Error("all without A: got a set, want all")
	}
}
