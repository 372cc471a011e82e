package simulate

import (
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// TestMixedFleetShowsEveryVerdict checks that every verdict occurs when a fleet has driven for the
// time that Mixed returns, and a minute later: the rules find cars that drive normally, cars that
// are slow, cars in a jam and throttle anomalies.
func TestMixedFleetShowsEveryVerdict(t *testing.T) {
	testkit.Unraced(t)
	for _, cars := range []int{100, 200, 300} {
		t.Run(fmt.Sprint(cars), func(t *testing.T) {
			t.Parallel()
			c := Config{Vehicles: cars, PerSecond: 0.5, Seed: 1, Faults: 0.4, FreeFlow: true, Prefix: "SIM"}
			c.Backdate = Mixed(c)
			s := New(c)
			lane := make(chan vehicle.Sample, cars*10)
			s.lanes = append(s.lanes, lane)
			s.begin = vehicle.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))
			states := make(map[vehicle.ID]vehicle.State)
			for _, end := range []time.Duration{c.Backdate, c.Backdate + time.Minute} {
				for s.fleet.Now() < end {
					s.step(t.Context())
					for len(lane) > 0 {
						x := <-lane
						states[x.Vehicle] = vehicle.Observe(states[x.Vehicle], x)
					}
				}
				var driving [4]int
				anomalies := 0
				for _, s := range states {
					driving[s.Driving().State]++
					if v := s.Throttle(); v.Time != 0 && v.System == vehicle.ThrottleAnomaly {
						anomalies++
					}
				}
				t.Logf("after %s: %d normal, %d slow, %d in a jam; %d anomalies", end, driving[1], driving[2],
					driving[3], anomalies)
				if min(driving[vehicle.NormalDriving], driving[vehicle.SlowDriving], driving[vehicle.TrafficJam],
					anomalies) == 0 {
					t.Errorf("after %s the verdicts are %v, with %d anomalies", end, driving, anomalies)
				}
			}
		})
	}
}
