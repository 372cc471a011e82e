package traffic

import (
	"math"
	"math/rand/v2"
	"time"

	"example.org/carstate/internal/signal"
)

type sensors struct {
	plateA, plateB, command, pedalD, pedalE scale
	idlePercent                             float64 // how far idling opens the plate

	foot        float64       // in percent
	lastPercent float64       // commanded at lastAt
	lastAt      time.Duration // 0: never
	ignitionDue time.Duration
}

// scale is the reading when closed or released, and the increase until fully open or pressed.
type scale struct{ closed, span float64 }

func newSensors(random *rand.Rand) sensors {
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*random.Float64() }
	s := sensors{
		plateA:      scale{between(10, 18), between(70, 78)},
		plateB:      scale{between(24, 34), between(58, 64)},
		command:     scale{between(0, 6), between(78, 90)},
		pedalD:      scale{between(14, 17), between(60, 68)},
		idlePercent: between(2.5, 5),
	}
	s.pedalE = scale{s.pedalD.closed / 2, s.pedalD.span / 2} // as in the pedal modules of most makers
	return s
}

const (
	massKg        = 1400
	powerWatt     = 75_000
	mostNewton    = 6000
	rollingNewton = 0.012 * massKg * 9.81
	dragNewton    = 0.39 // at 1 m/s
)

// effort is the needed share of the greatest force, which power limits at speed.
func effort(mps, mps2 float64) float64 {
	needs := massKg*mps2 + dragNewton*mps*mps
	if mps > 0.5 {
		needs += rollingNewton
	}
	return max(0, min(needs/min(mostNewton, powerWatt/max(mps, 1)), 1))
}

// gears has the speed up to which each is used, and its engine speed per km/h.
var gears = [...]struct{ untilKmh, rpm float64 }{{15, 130}, {30, 75}, {50, 52}, {70, 40}, {90, 33}, {math.Inf(1), 27}}

func engineRPM(kmh float64) float64 {
	i := 0
	for kmh > gears[i].untilKmh {
		i++
	}
	return max(800, kmh*gears[i].rpm)
}

const (
	plateLagSeconds   = 0.08 // a motor turns the plate
	footTremble       = 0.8  // standard deviation
	footSeconds       = 1.0  // time constant
	plateNoisePercent = 0.15
	pedalNoisePercent = 0.1

	ignitionEvery = time.Minute
)

// read returns the readings of the time at, seconds ago.
func (c *car) read(random *rand.Rand, at time.Duration, seconds float64, freeFlow bool) (r signal.Readings) {
	if c.place == parked {
		set(&r, signal.Speed, 0)
		set(&r, signal.EngineSpeed, 0)
		set(&r, signal.LowVoltageSystemState, float64(signal.IgnitionOff))
		c.lastAt, c.ignitionDue = 0, 0
		return r
	}
	mps := max(0, c.mps-c.mps2*seconds)
	kmh := mps * 3.6
	if kmh > 0.3 {
		kmh = max(0, kmh+0.15*random.NormFloat64())
	} else {
		kmh = 0 // wheel sensors count teeth, and none passed
	}
	set(&r, signal.Speed, math.Round(kmh*10)/10)
	set(&r, signal.EngineSpeed, math.Round(4*(engineRPM(kmh)+8*random.NormFloat64()))/4)

	gone := footSeconds
	if c.lastAt != 0 {
		gone = (at - c.lastAt).Seconds()
	}
	keep := math.Exp(-gone / footSeconds)
	c.foot = keep*c.foot + footTremble*math.Sqrt(1-keep*keep)*random.NormFloat64()
	pedal := 0.0
	if e := effort(mps, c.mps2); e > 0.02 {
		pedal = max(0, min(100*math.Pow(e, 0.8)+c.foot, 100))
	}
	command := c.idlePercent + (100-c.idlePercent)*math.Pow(pedal/100, 1.3)
	plate := command
	if c.lastAt != 0 {
		plate -= (command - c.lastPercent) * min(1, plateLagSeconds/max(gone, 1e-3))
	}
	c.lastPercent, c.lastAt = command, at

	sense := func(s signal.Signal, on scale, percent, noise float64) {
		set(&r, s, oneByte(on.closed+on.span*percent/100+noise*random.NormFloat64()))
	}
	sense(signal.ThrottlePosition, c.plateA, plate, plateNoisePercent)
	sense(signal.ThrottlePositionB, c.plateB, plate, plateNoisePercent)
	sense(signal.ThrottleActuator, c.command, command, 0)
	sense(signal.AcceleratorPositionD, c.pedalD, pedal, pedalNoisePercent)
	sense(signal.AcceleratorPositionE, c.pedalE, pedal, pedalNoisePercent)
	if at >= c.ignitionDue {
		c.ignitionDue = at + ignitionEvery
		set(&r, signal.LowVoltageSystemState, float64(signal.IgnitionOn))
	}
	if freeFlow {
		known := 0.0 // as in a side street
		if c.place == onRoad {
			known = math.Round(c.road.light.meanMps * 3.6)
		}
		set(&r, signal.FreeFlowSpeed, known)
	}
	return r
}

func set(r *signal.Readings, s signal.Signal, v float64) {
	if err := r.Set(s, v); err != nil {
		panic(err) // a fault of a model
	}
}

func oneByte(percent float64) float64 {
	return math.Round(max(0, min(percent, 100))*255/100) * 100 / 255
}
