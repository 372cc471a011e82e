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

	// Anomaly and Healthy are the numbers of vehicles by throttle state. OldThrottle and NoThrottle
	// are for the throttle what Stale and Unknown are for driving.
	Anomaly, Healthy, OldThrottle, NoThrottle int

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
	c := f.Count(vehicle.At(now), maxAge, ageLimits[:])
	d, t := c.Driving, c.Throttle
	s := FleetCounts{
		At: now, Normal: d["normal"], Slow: d["slow"], Jam: d["jam"], NotDriving: d["not_driving"], Stale: d["stale"],
		Unknown: d["unknown"], Anomaly: t["anomaly"], Healthy: t["normal"], OldThrottle: t["stale"], NoThrottle: t["unknown"],
		Ages: [7]int(c.Ages),
	}
	s.Vehicles = s.Driving() + s.NotDriving + s.Stale + s.Unknown
	return s
}
