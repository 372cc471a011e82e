package fleet_test

import (
	"fmt"
	"testing"

	"carstate/internal/fleet"
	"carstate/internal/vehicle"
)

// TestAll_YieldsEachVehicleOnce checks that every vehicle is yielded once, with its verdicts.
func TestAll_YieldsEachVehicleOnce(t *testing.T) {
	table := fleet.New()
	const vehicles = 5000
	for i := range vehicles {
		table.Put(vehicle.ID(fmt.Sprintf("car%d", i)), fleet.Answer{
			Driving:  vehicle.DrivingVerdict{State: vehicle.TrafficJam, Time: vehicle.UnixMilli(i + 1)},
			Throttle: vehicle.ThrottleVerdict{System: vehicle.ThrottleNormal, Time: 7},
		})
	}
	seen := make(map[vehicle.UnixMilli]bool)
	for a := range table.All() {
		if a.Driving.State != vehicle.TrafficJam || a.Throttle.System != vehicle.ThrottleNormal || a.Throttle.Time != 7 ||
			seen[a.Driving.Time] {
			t.Fatalf("got %+v, want a jam, a normal throttle system of time 7, and each driving time once", a)
		}
		seen[a.Driving.Time] = true
	}
	if len(seen) != vehicles {
		t.Errorf("got %d vehicles, want %d", len(seen), vehicles)
	}
	for range table.All() {
		return // leave the loop early: it must not leave a lock held
	}
}
