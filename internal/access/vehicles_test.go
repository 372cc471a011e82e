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
			t.Errorf("%s: all %v, len %d", tt.name, tt.v.All(), tt.v.Len())
		}
		if tt.v.Include("A") != tt.a || tt.v.IncludeBytes([]byte("A")) != tt.a {
			t.Errorf("%s: wrong about A", tt.name)
		}
		if tt.v.Include("C") != tt.c || tt.v.IncludeBytes([]byte("C")) != tt.c {
			t.Errorf("%s: wrong about C", tt.name)
		}
	}
	if got := set.Sorted(); !slices.Equal(got, []vehicle.ID{"A", "B"}) {
		t.Errorf("sorted: %v", got)
	}
	if set.Include("a") {
		t.Error("case does not matter, but it must")
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
			t.Fatal("With or Without changed the set they were asked of")
		}
		for _, id := range []vehicle.ID{"A", "B", "C", "D", "E"} {
			had := slices.Contains(start, id) || slices.Contains(add, id)
			if more.Include(id) != had || less.Include(id) != (had && !slices.Contains(remove, id)) {
				t.Fatalf("wrong about %s", id)
			}
		}
	})
}

func TestVehiclesZeroAndAll(t *testing.T) {
	var none access.Vehicles
	if !none.With("A").Include("A") {
		t.Error("nothing with A does not include A")
	}
	if v := none.Without("A"); v.All() || v.Len() != 0 {
		t.Error("nothing without A is something")
	}
	if !access.AllVehicles().With("A").All() {
		t.Error("all with A is not all")
	}
	if !access.AllVehicles().Without("A").All() {
		t.Error("all lost a vehicle")
	}
}
