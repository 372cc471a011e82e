package traffic

import (
	"math"
	"math/rand/v2"
	"time"

	"example.org/carstate/internal/signal"
)

type receiver struct {
	drift, jitter point
	fixAt         time.Duration // 0: never
}

// Drift changes slowly, and jitter fast.
const (
	driftMeter    = 4
	driftSeconds  = 60
	jitterMeter   = 1.5
	jitterSeconds = 1 // a receiver smooths faster changes

	accuracyMeter = 5
	// error of the velocity from which the heading is computed; none below leastCourseMps
	courseMps, leastCourseMps = 0.2, 1
)

// stray is an Ornstein-Uhlenbeck process.
func (p *point) stray(random *rand.Rand, meter, keep float64) {
	fresh := meter * math.Sqrt(1-keep*keep)
	p.eastMeter = keep*p.eastMeter + fresh*random.NormFloat64()
	p.northMeter = keep*p.northMeter + fresh*random.NormFloat64()
}

// locate adds the position of seconds ago. A parked car is at the kerb where it left its road. In
// side streets there is no reception.
func (c *car) locate(random *rand.Rand, at time.Duration, seconds float64, r *signal.Readings) {
	var is point
	var heading, mps float64
	switch c.place {
	case sideStreet:
		return
	case parked:
		is = c.left
	case onRoad:
		mps = max(0, c.mps-c.mps2*seconds)
		is, heading = c.road.ring.at(c.meter - (mps+c.mps)/2*seconds)
	}
	gone := math.Inf(1)
	if c.fixAt != 0 {
		gone = (at - c.fixAt).Seconds()
	}
	c.fixAt = at
	c.drift.stray(random, driftMeter, math.Exp(-gone/driftSeconds))
	c.jitter.stray(random, jitterMeter, math.Exp(-gone/jitterSeconds))
	is.eastMeter += c.drift.eastMeter + c.jitter.eastMeter
	is.northMeter += c.drift.northMeter + c.jitter.northMeter

	latitude, longitude := is.degrees()
	set(r, signal.CurrentLatitude, latitude)
	set(r, signal.CurrentLongitude, longitude)
	set(r, signal.CurrentAccuracy, math.Round(10*accuracyMeter*(1+0.1*random.Float64()))/10)
	if mps >= leastCourseMps {
		degrees := (heading + courseMps/mps*random.NormFloat64()) * 180 / math.Pi
		set(r, signal.CurrentHeading, math.Mod(math.Round(math.Mod(degrees, 360)+360), 360))
	}
}
