package console

import (
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/vehicle"
)

// FleetCounts holds the numbers of vehicles by their verdicts, at one time.
type FleetCounts struct {
	At       time.Time
	Vehicles int

	// Normal, Slow and Jam are the numbers of vehicles in these driving states. Vehicles with a
	// stale verdict are counted in Stale instead.
	Normal, Slow, Jam int
	NotDriving        int
	// Stale is the number of vehicles whose driving verdict is based on a reading that is too old.
	// Unknown is the number of vehicles that never had a speed reading.
	Stale, Unknown int

	// Anomaly is the number of vehicles with a throttle anomaly. Vehicles with a stale throttle
	// verdict are not counted.
	Anomaly int

	// Ages holds the numbers of vehicles by the age of their newest verdict; see ageLimits.
	Ages [7]int
}

// ageLimits are the upper bounds of the age classes in Ages. The last class has no upper bound.
var ageLimits = [6]time.Duration{
	10 * time.Second, time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

// Driving returns the number of vehicles with a driving state that is not stale.
func (s FleetCounts) Driving() int { return s.Normal + s.Slow + s.Jam }

// countFleet counts the vehicles as of time now, in one pass over the fleet table.
func countFleet(f *fleet.Table, now time.Time, maxAge time.Duration) FleetCounts {
	s, t := FleetCounts{At: now}, vehicle.At(now)
	for a := range f.All() {
		s.Vehicles++
		switch a.Driving.At(t, maxAge) {
		case vehicle.Answered:
			switch a.Driving.State {
			case vehicle.SlowDriving:
				s.Slow++
			case vehicle.TrafficJam:
				s.Jam++
			default:
				s.Normal++
			}
		case vehicle.NotDriving:
			s.NotDriving++
		case vehicle.Stale:
			s.Stale++
		default:
			s.Unknown++
		}
		if a.Throttle.At(t, maxAge) == vehicle.Answered && a.Throttle.System == vehicle.ThrottleAnomaly {
			s.Anomaly++
		}
		age, class := t.Sub(max(a.Driving.Time, a.Throttle.Time)), 0
		for class < len(ageLimits) && age > ageLimits[class] {
			class++
		}
		s.Ages[class]++
	}
	return s
}
