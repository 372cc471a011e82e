//go:build !race

package simulate_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/lab/simulate"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// At the time of Mixed and a minute later.
func TestMixedFleetShowsEveryVerdict(t *testing.T) {
	for _, cars := range []int{100, 200, 300} {
		t.Run(fmt.Sprint(cars), func(t *testing.T) {
			t.Parallel()
			c := simulate.Config{Vehicles: cars, PerSecond: 0.5, Seed: 1, Faults: 0.4, FreeFlow: true, Prefix: "SIM"}
			c.Backdate = simulate.Mixed(c)
			wants := []time.Duration{c.Backdate, c.Backdate + time.Minute}
			c.Backdate += time.Minute
			c.Duration = time.Millisecond // ends once the fleet has reached the present
			d := &folding{states: make(map[vehicle.ID]vehicle.State), after: wants}
			testkit.NoError(t, simulate.New(c).Run(t.Context(), d))
			d.look()
			if len(d.after) != 0 {
				t.Errorf("the fleet: got its end before %s, want it after", d.after)
			}
			for i, seen := range d.seen {
				if slices.Min(seen[:]) == 0 {
					t.Errorf("after %s: got %v normal, slow, in a jam and with an anomaly, want some of each", wants[i], seen)
				}
			}
		})
	}
}

type folding struct {
	states map[vehicle.ID]vehicle.State
	first  signal.UnixMilli
	after  []time.Duration
	seen   [][4]int
}

func (d *folding) Send(_ context.Context, samples []vehicle.Sample) error {
	for _, x := range samples {
		if d.first == 0 {
			d.first = x.Time
		}
		if len(d.after) > 1 && x.Time.Sub(d.first) > d.after[0] {
			d.look()
		}
		d.states[x.Vehicle] = vehicle.Observe(d.states[x.Vehicle], x)
	}
	return nil
}

func (d *folding) look() {
	var n [4]int
	for _, s := range d.states {
		if state := s.Driving().State; state != 0 {
			n[state-1]++
		}
		if v := s.Throttle(); v.Time != 0 && v.System == throttle.Anomaly {
			n[3]++
		}
	}
	d.seen, d.after = append(d.seen, n), d.after[1:]
}

func (d *folding) Door() string { return "a test" }
func (d *folding) Close()       {}
