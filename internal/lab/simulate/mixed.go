package simulate

import (
	"slices"
	"time"

	"example.org/carstate/internal/vehicle"
)

// A fleet is mixed at a time t if each of the three driving states has at least 1/mixedShare of the
// cars, without a break from mixedBefore before t until mixedAfter after t. The period before t is
// necessary because a verdict changes later than the traffic. [Mixed] looks for such a time from
// mixedFirst on, because earlier there are no throttle faults. It simulates until mixedLast, when
// the number of cars on each road has risen and fallen at least once. It checks the fleet at
// intervals of mixedStep.
const (
	mixedShare  = 30
	mixedBefore = time.Minute
	mixedAfter  = 3 * time.Minute
	mixedFirst  = 10 * time.Minute
	mixedLast   = 40 * time.Minute
	mixedStep   = 5 * time.Second
	// alwaysMixed is the smallest number of cars with which a fleet has enough roads to have cars
	// in every driving state at any time.
	alwaysMixed = 1000
)

// Mixed returns the time, from the beginning of a fleet, at which the fleet is first mixed: some
// cars drive normally, some are slow and some are in a jam. For a fleet of at least alwaysMixed
// cars, this is mixedFirst. If the fleet is never mixed, for example because it has a single road,
// Mixed returns the time at which the rarest of the three states has most cars.
func Mixed(c Config) time.Duration {
	if c.Vehicles >= alwaysMixed {
		return mixedFirst
	}
	c.PerSecond = 1.0 / 3600 // few readings: their number does not change the traffic
	fleet := underWay(c.Config)
	var rarest []int // the number of cars in the rarest state at each step
	best, most := mixedFirst, 0
	for fleet.Now() < mixedLast && most*mixedShare < c.Vehicles {
		if fleet.Step(func(int, time.Duration, vehicle.Readings) {}); fleet.Now()%mixedStep != 0 {
			continue
		}
		var of [4]int
		for i := range c.Vehicles {
			of[fleet.Truth(i).Driving]++
		}
		rarest = append(rarest, min(of[vehicle.NormalDriving], of[vehicle.SlowDriving], of[vehicle.TrafficJam]))
		const window = int((mixedBefore + mixedAfter) / mixedStep)
		at := fleet.Now() - mixedAfter
		if at < mixedFirst {
			continue
		}
		if least := slices.Min(rarest[len(rarest)-window:]); least > most {
			best, most = at, least
		}
	}
	return best
}
