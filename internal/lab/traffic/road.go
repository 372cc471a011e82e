package traffic

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const carLength = 4.5

// road is a ring with one lane.
type road struct {
	*kind
	lengthMeter float64
	lightMeter  float64 // between lights; 0 without
	phase       float64 // of the tide, 0 to 2π
	swellPerKm  float64 // added by the highest tide
	// Each car is behind the next one, and the last is behind the first.
	cars  []*car
	flow  flow
	light light
	ring  ring
}

func newRoad(k *kind, lengthMeter float64) *road {
	r := &road{kind: k, lengthMeter: lengthMeter, flow: newFlow(lengthMeter, k.window)}
	if k.lights.everyMeter > 0 {
		r.lightMeter = lengthMeter / max(1, math.Round(lengthMeter/k.lights.everyMeter))
	}
	return r
}

// gap is bumper to bumper; a car alone is in front of itself.
func (r *road) gap(i int) (meter float64, before *car) {
	c := r.cars[i]
	before = r.cars[(i+1)%len(r.cars)]
	if meter = before.meter - c.meter; meter < 0 || before == c {
		meter += r.lengthMeter
	}
	return meter - carLength, before
}

func (r *road) step(now time.Duration) {
	for i, c := range r.cars {
		gap, before := r.gap(i)
		c.mps2 = min(c.follow(c.mps, gap, before.mps), r.obeyLight(c, now))
	}
	for _, c := range r.cars {
		moved := c.advance(stepSeconds)
		r.flow.add(c.meter, moved, stepSeconds)
		if c.meter += moved; c.meter >= r.lengthMeter {
			c.meter -= r.lengthMeter
		}
	}
	r.flow.tick(now)
}

// waveShare is the speed of the green wave, divided by the desired speed.
const waveShare = 0.85

// A car passes yellow if it would have to brake at more than 3 m/s², and red only if even hard
// braking would not stop it. obeyLight returns +Inf if no light stops it.
func (r *road) obeyLight(c *car, now time.Duration) float64 {
	if r.lightMeter == 0 {
		return math.Inf(1)
	}
	next := math.Floor(c.meter/r.lightMeter) + 1
	wave := next * r.lightMeter / (waveShare * r.desiredMps)
	at := now + r.lights.cycle - time.Duration(wave*float64(time.Second))%r.lights.cycle
	sinceRed := at%r.lights.cycle - (r.lights.cycle - r.lights.red)
	if sinceRed < 0 {
		return math.Inf(1)
	}
	way := next*r.lightMeter - c.meter
	willing := 3.0
	if sinceRed > yellow {
		willing = hardestMps2 - 1
	}
	if c.mps*c.mps > 2*willing*way {
		return math.Inf(1)
	}
	return c.follow(c.mps, way, 0)
}

// politeMps2 is the greatest deceleration that a car turning into a road causes (Kesting, Treiber,
// Helbing, "MOBIL", 2007).
const politeMps2 = 4

// admit puts c before the i-th car, unless there is no room without hard braking.
func (r *road) admit(c *car, i int, now time.Duration) bool {
	if len(r.cars) == 0 {
		c.meter = 0
		r.cars = append(r.cars, c)
		return true
	}
	behind := r.cars[i]
	gap, before := r.gap(i)
	room := (gap - carLength) / 2
	if room < c.minGapMeter/2 {
		return false
	}
	c.meter = behind.meter + carLength + room
	if c.meter >= r.lengthMeter {
		c.meter -= r.lengthMeter
	}
	if behind.follow(behind.mps, room, c.mps) < -politeMps2 ||
		c.follow(c.mps, room, before.mps) < -politeMps2 || r.obeyLight(c, now) < -politeMps2 {
		return false
	}
	r.cars = slices.Insert(r.cars, i+1, c)
	return true
}

func (r *road) meanMps() float64 {
	if len(r.cars) == 0 {
		return r.desiredMps
	}
	var sum float64
	for _, c := range r.cars {
		sum += c.mps
	}
	return sum / float64(len(r.cars))
}

const apartMeter = 250

// layOut places roads in random order, so that those full at the same time are not all close.
func layOut(roads []*road, random *rand.Rand) {
	var reach float64
	for _, r := range roads {
		r.ring = newRing(r.lengthMeter)
		reach = max(reach, r.ring.reachMeter())
	}
	pitch, columns := 2*reach+apartMeter, int(math.Ceil(math.Sqrt(float64(len(roads)))))
	for slot, i := range random.Perm(len(roads)) {
		g := &roads[i].ring
		g.turned = 2 * math.Pi * random.Float64()
		g.middle = point{
			pitch * (float64(slot%columns) - float64(columns-1)/2),
			pitch * (float64(slot/columns) - float64(columns-1)/2),
		}
	}
}
