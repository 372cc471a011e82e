package simulate

import (
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
)

// A fleet is mixed at a time if each state has at least 1/mixedShare of the cars from mixedBefore
// it, because verdicts are later than traffic, to mixedAfter it. Faults begin at mixedFirst; by
// mixedLast, the tide has come.
const (
	mixedShare  = 30
	mixedBefore = time.Minute
	mixedAfter  = 3 * time.Minute
	mixedFirst  = 10 * time.Minute
	mixedLast   = 40 * time.Minute
	mixedStep   = 5 * time.Second
	// Fleets of this size are always mixed.
	alwaysMixed = 1000
)

// Mixed returns when a fleet is first mixed, or if never, when its rarest state has most cars.
func Mixed(c Config) time.Duration {
	if c.Vehicles >= alwaysMixed {
		return mixedFirst
	}
	c.PerSecond = 1.0 / 3600 // the number of readings does not change the traffic
	fleet := underWay(c.Config)
	var rarest []int // cars of the rarest state, by step
	best, most := mixedFirst, 0
	for fleet.Now() < mixedLast && most*mixedShare < c.Vehicles {
		if fleet.Step(func(int, time.Duration, signal.Readings) {}); fleet.Now()%mixedStep != 0 {
			continue
		}
		var of [4]int
		for i := range c.Vehicles {
			of[fleet.Truth(i).Driving]++
		}
		rarest = append(rarest, min(of[driving.Normal], of[driving.Slow], of[driving.Jam]))
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
