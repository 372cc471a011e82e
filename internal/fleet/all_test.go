package fleet_test

import (
	"fmt"
	"testing"

	"carstate/internal/fleet"
	"carstate/internal/vehicle"
)

// TestAll checks that every vehicle is yielded once, with its verdicts.
func TestAll(t *testing.T) {
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
			t.Fatalf("%+v", a)
		}
		seen[a.Driving.Time] = true
	}
	if len(seen) != vehicles {
		t.Errorf("%d of %d vehicles", len(seen), vehicles)
	}
	for range table.All() {
		return // a loop that is left early must not leave a lock held
	}
}
