// Package speedcheck finds a constant factor, such as 3.6 for m/s, between the speeds and the
// positions of a source. It watches a few vehicles, in memory only: their positions must never
// leave this package, and a vehicle is a hash that only this process can compute.
package speedcheck

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const (
	maxCars = 16
	// A car that has not driven for so long gives its place to another.
	silence = 5 * time.Minute
	// A leg, over which speeds and positions are compared, has no lower speed (km/h as sent).
	slowest = 7
	// Two successive speeds of a leg differ by less than this share, so their mean is the speed in
	// between.
	similar = 0.2
	// between two successive speeds of a leg
	maxStep = time.Minute
	// A leg is at least so long by its speeds; to use positions here would bias the measurement.
	legMetres, legTime = 25, 3 * time.Second
	// legs of a round; a factor is found after minRounds
	legs, minRounds = 10, 3
	// a factor from which on speeds are wrong; tyres and receivers differ by less
	off = 1.15
	// a round with a 7/8 quantile above this many medians shows nothing
	scatter = 1.2
	// the greatest quotients of two factors that count as one, and of a factor and its unit
	agree, unitWithin = 1.15, 1.12
)

type Finding struct {
	Factor   float64 // a speed as sent, times this, is in km/h
	Unit     string  // of Units, or empty
	Vehicles int     // with this factor
	Compared int     // whose speeds and positions could be compared
}

var Units = []struct {
	Name   string
	Factor float64
}{
	{metresPerSecond, 3.6}, {"mph", 1.609}, {"knots", 1.852},
	{"km/h*3.6", 1 / 3.6}, {"km/h*1.609", 1 / 1.609}, {"km/h*1.852", 1 / 1.852}, // converted once too often
}

const metresPerSecond = "m/s"

// Check watches one source. The zero value is ready for use.
type Check struct {
	Found Finding
	told  bool
	cars  []car
}

type car struct {
	hash  uint64
	drove signal.UnixMilli // when it last drove at least slowest
	// newest sample with a speed (last, kmh), and newest position (at)
	last signal.UnixMilli
	kmh  float32
	at   position
	// the present leg; if began is zero, there is none
	began  signal.UnixMilli
	from   position
	metres float32
	ratios []float32 // of this round
	// what the last round found: 1 is right, zero unknown
	factor float32
	rounds uint8
}

type position struct{ latitude, longitude float32 }

var seed = maphash.MakeSeed()

// Add adds stored samples, ordered by time for each vehicle, and reports the first finding.
func (c *Check) Add(samples []vehicle.Sample) (first bool) {
	for i := range samples {
		x := &samples[i]
		if kmh, ok := x.Speed(); ok {
			if k := c.watched(x, kmh); k != nil && k.add(x, kmh) {
				c.judge()
			}
		}
	}
	first = c.Found.Factor != 0 && !c.told
	c.told = c.told || first
	return first
}

// watched returns the car of x, or nil. A driving car gets a free place, or that of a silent one.
func (c *Check) watched(x *vehicle.Sample, kmh float32) *car {
	hash := maphash.String(seed, string(x.Vehicle))
	for i := range c.cars {
		if c.cars[i].hash == hash {
			return &c.cars[i]
		}
	}
	if _, ok := positionOf(x); !ok || kmh < slowest {
		return nil
	}
	if len(c.cars) < maxCars {
		c.cars = append(c.cars, car{hash: hash})
		return &c.cars[len(c.cars)-1]
	}
	k := &c.cars[hash%maxCars]
	if x.Time.Sub(k.drove) < silence {
		return nil
	}
	*k = car{hash: hash}
	return k
}

func positionOf(x *vehicle.Sample) (p position, ok bool) {
	var has [2]bool
	p.latitude, has[0] = x.Value(signal.CurrentLatitude)
	p.longitude, has[1] = x.Value(signal.CurrentLongitude)
	accuracy, _ := x.Value(signal.CurrentAccuracy)
	return p, has[0] && has[1] && p != position{} && accuracy <= driving.StayMetres
}

// add reports whether x ends a round. Receivers repeat positions, so a leg begins and ends only
// with a new position.
func (k *car) add(x *vehicle.Sample, kmh float32) bool {
	step := x.Time.Sub(k.last)
	if step <= 0 {
		return false
	}
	slow, fast := min(k.kmh, kmh), max(k.kmh, kmh)
	if step > maxStep || slow < slowest || slow < (1-similar)*fast {
		k.began = 0
	}
	k.metres += (slow + fast) / 2 / 3.6 * float32(step.Seconds())
	k.last, k.kmh = x.Time, kmh
	if kmh >= slowest {
		k.drove = x.Time
	}
	at, ok := positionOf(x)
	if !ok || at == k.at {
		return false
	}
	k.at = at
	if k.began != 0 {
		took := x.Time.Sub(k.began)
		if k.metres < legMetres || took < legTime {
			return false
		}
		k.ratios = append(k.ratios, ratio(at.metresFrom(k.from), k.metres, float32(took.Seconds())))
	}
	k.began, k.from, k.metres = x.Time, at, 0
	if len(k.ratios) < legs {
		return false
	}
	k.judge()
	return true
}

// ratio divides a leg's line by its metres as the speeds show them. If the car may have turned, a
// shorter line is ignored (1): turns change the velocity by up to twice the speed, at less than 4
// m/s².
func ratio(line, metres, seconds float32) float32 {
	if line < metres && metres < 2*seconds*seconds {
		return 1
	}
	return line / metres
}

func (p position) metresFrom(q position) float32 {
	const perDegree = 111_195
	north := float64(p.latitude) - float64(q.latitude)
	east := math.Remainder(float64(p.longitude)-float64(q.longitude), 360) * math.Cos(float64(p.latitude)*math.Pi/180)
	return float32(perDegree * math.Hypot(north, east))
}

// judge needs three quarters of the ratios off in one direction. Those above the median are noise
// if they scatter; those below may, because a line cuts corners.
func (k *car) judge() {
	r, factor := k.ratios, float32(1)
	slices.Sort(r)
	switch median := r[legs/2]; {
	case r[legs*7/8] > scatter*median:
		factor = 0
	case r[legs/4] > off || r[legs*3/4] < 1/off:
		factor = median
	}
	if !within(float64(factor), float64(k.factor), agree) {
		k.rounds = 0
	}
	k.ratios, k.factor, k.rounds = r[:0], factor, min(k.rounds+1, minRounds)
}

func within(a, b, factor float64) bool { return a < factor*b && b < factor*a }

// One car is enough only if there is no other. If most cars are right, only m/s is found for the
// others: no other factor above 1 is so great.
func (c *Check) judge() {
	c.Found = Finding{}
	var wrong []float64
	f, rounds := Finding{}, 0
	for i := range c.cars {
		if k := float64(c.cars[i].factor); k != 0 {
			f.Compared++
			if k != 1 {
				wrong = append(wrong, k)
			}
		}
	}
	if len(wrong) == 0 {
		return
	}
	slices.Sort(wrong)
	for i := range c.cars {
		if k := &c.cars[i]; within(float64(k.factor), wrong[len(wrong)/2], agree) {
			rounds += int(k.rounds)
			f.Factor += float64(k.factor)
			f.Vehicles++
		}
	}
	f.Factor = math.Round(f.Factor/float64(f.Vehicles)*100) / 100
	nearest := unitWithin
	for _, u := range Units {
		if q := max(u.Factor/f.Factor, f.Factor/u.Factor); q < nearest {
			f.Unit, nearest = u.Name, q
		}
	}
	most := 2*f.Vehicles > f.Compared || f.Unit == metresPerSecond
	if most && rounds >= minRounds && f.Vehicles >= min(2, len(c.cars)) {
		c.Found = f
	}
}
