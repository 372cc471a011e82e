package console

import (
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
)

type FleetCounts struct {
	At       time.Time
	Vehicles int

	// Vehicles with a stale verdict are in Stale instead.
	Normal, Slow, Jam int
	NotDriving        int
	// Stale: the driving verdict is based on a reading that is too old. Unknown: there never was a
	// speed.
	Stale, Unknown int

	// By throttle state. OldThrottle and NoThrottle are what Stale and Unknown are for driving.
	Anomaly, Healthy, OldThrottle, NoThrottle int

	// By the age of the newest verdict; see ageLimits.
	Ages [7]int
}

// The last class in Ages has no upper bound.
var ageLimits = [6]time.Duration{
	10 * time.Second, time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

// Driving counts the vehicles with a driving state that is not stale.
func (s FleetCounts) Driving() int { return s.Normal + s.Slow + s.Jam }

func countFleet(f *fleet.Table, now time.Time, maxAge time.Duration) FleetCounts {
	c := f.Count(signal.At(now), maxAge, ageLimits[:])
	d, t := c.Driving, c.Throttle
	s := FleetCounts{
		At: now, Normal: d["normal"], Slow: d["slow"], Jam: d["jam"], NotDriving: d["not_driving"], Stale: d["stale"],
		Unknown: d["unknown"], Anomaly: t["anomaly"], Healthy: t["normal"], OldThrottle: t["stale"], NoThrottle: t["unknown"],
		Ages: [7]int(c.Ages),
	}
	s.Vehicles = s.Driving() + s.NotDriving + s.Stale + s.Unknown
	return s
}
