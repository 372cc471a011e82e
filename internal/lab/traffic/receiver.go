package traffic

import (
	"math"
	"math/rand/v2"
	"time"

	"example.org/carstate/internal/vehicle"
)

// receiver is a car's satellite receiver, with its present errors.
type receiver struct {
	drift, jitter point
	fixAt         time.Duration // time of its last fix; 0: never
}

// The position of a satellite receiver has two errors: drift, which changes slowly, and jitter,
// which changes fast. The constants are the standard deviation of each error to the east and to the
// north, in metres, and its time constant, in seconds.
const (
	driftMeter    = 4
	driftSeconds  = 60
	jitterMeter   = 1.5
	jitterSeconds = 1 // a receiver smooths faster changes

	accuracyMeter = 5
	// courseMps is the standard deviation, in m/s, of the error of the receiver's velocity, from
	// which its heading is computed. The receiver reports no heading at speeds below
	// leastCourseMps, in m/s.
	courseMps, leastCourseMps = 0.2, 1
)

// stray changes the error p of a position as time passes. The error is an Ornstein-Uhlenbeck
// process whose standard deviation, in metres, is meter. keep is the correlation
// of the new error with the previous one.
func (p *point) stray(random *rand.Rand, meter, keep float64) {
	fresh := meter * math.Sqrt(1-keep*keep)
	p.eastMeter = keep*p.eastMeter + fresh*random.NormFloat64()
	p.northMeter = keep*p.northMeter + fresh*random.NormFloat64()
}

// locate adds the car's position at the time at to the readings r. The time at was the given number
// of seconds ago, so locate computes back from the present position. A parked car is at the kerb
// where it left its road. In side streets, locate adds nothing: the receiver is assumed to have no
// reception there, as a real one between high buildings.
func (c *car) locate(random *rand.Rand, at time.Duration, seconds float64, r *vehicle.Readings) {
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
	set(r, vehicle.CurrentLatitude, latitude)
	set(r, vehicle.CurrentLongitude, longitude)
	set(r, vehicle.CurrentAccuracy, math.Round(10*accuracyMeter*(1+0.1*random.Float64()))/10)
	if mps >= leastCourseMps {
		degrees := (heading + courseMps/mps*random.NormFloat64()) * 180 / math.Pi
		set(r, vehicle.CurrentHeading, math.Mod(math.Round(math.Mod(degrees, 360)+360), 360))
	}
}
