package traffic

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
)

type Config struct {
	Vehicles int
	// The intervals of reports vary at random by up to a fifth.
	PerSecond float64
	Seed      uint64
	FreeFlow  bool // also report the road's mean speed in light traffic
	// WithoutPositions changes nothing else.
	WithoutPositions bool
	// Light keeps the number of cars on each road at its minimum.
	Light bool
}

type Fleet struct {
	config  Config
	cars    []*car
	roads   []*road
	idle    []*car // without a next road
	now     time.Duration
	epoch   time.Duration // when Now is 0
	random  *rand.Rand
	tremble *rand.Rand // so that the number of readings does not change the traffic
	sky     *rand.Rand // so that positions change nothing else
}

type Truth struct {
	Driving    driving.State // 0 if the car is parked or in a side street
	Since      time.Duration // of Driving, on the clock of [Fleet.Now]
	Parked     bool
	LimitKmh   float64 // 0 on no road
	OfFreeFlow float64 // of the cars around, by the speed in light traffic
}

const (
	carsPerRoad = 60
	onRoads     = 0.8 // of the cars, on average
	// A smaller fleet has a single road.
	fewRoads      = 30
	shortestMeter = 400
	tide          = 30 * time.Minute
	// The tide of the calmest road is 1-leastSwell of that of the busiest of its kind.
	leastSwell    = 0.8
	stay          = 20 * time.Minute // mean time on one road
	parkingShare  = 0.3              // of the cars leaving a road
	shortestPark  = 2 * time.Minute
	meanPark      = 6 * time.Minute
	parkedEvery   = 30 * time.Second // between two reports
	sideStreetMps = 30 / 3.6         // from one road to another
	acrossMps     = 80 / 3.6
)

func New(c Config) *Fleet {
	f := &Fleet{config: c, random: rand.New(rand.NewPCG(c.Seed, 1)), tremble: rand.New(rand.NewPCG(c.Seed, 2)),
		sky: rand.New(rand.NewPCG(c.Seed, 4))}
	for range c.Vehicles {
		f.cars = append(f.cars, &car{place: sideStreet, sensors: newSensors(f.random)})
	}
	roads, spread := max(len(kinds), c.Vehicles/carsPerRoad), onRoads
	if c.Vehicles < fewRoads {
		roads, spread = 1, onRoads/2 // half of the cars wait until the tide rises
	}
	f.build(roads, spread*float64(c.Vehicles)/float64(roads))
	layOut(f.roads, f.random)
	for i, x := range f.fill() {
		x.left = f.roads[i%len(f.roads)].ring.middle
		f.idle = append(f.idle, x)
	}
	f.schedule()
	return f
}

func (f *Fleet) build(roads int, mean float64) {
	type class struct {
		kind        *kind
		lengthMeter float64
	}
	known := make(map[class]light)
	for i := range roads {
		k := &kinds[(i+1)%len(kinds)] // a single road is a street
		// Some roads jam badly, some almost never.
		_, part := math.Modf(float64(i) * math.Phi)
		swell := (1 - leastSwell*part) * (k.mostPerKm - k.fewestPerKm)
		// The mean of the square of the tide's height (see target) is 3/8.
		length := max(shortestMeter, 1000*mean/(k.fewestPerKm+swell*3/8))
		r := newRoad(k, cellMeter*math.Round(length/cellMeter))
		if !f.config.Light {
			r.swellPerKm = swell
		}
		r.phase = 2 * math.Pi * float64(i) / float64(roads)
		at := class{k, r.lengthMeter}
		if _, ok := known[at]; !ok {
			known[at] = newLight(k, r.lengthMeter)
		}
		r.light = known[at]
		f.roads = append(f.roads, r)
	}
}

func (f *Fleet) fill() []*car {
	next := f.cars
	for _, r := range f.roads {
		n := min(int(r.target(0)), len(next))
		for j, x := range next[:n] {
			x.place, x.road, x.driver = onRoad, r, r.kind.like(f.random)
			x.meter, x.mps = r.lengthMeter*float64(j)/float64(n), 0.3*x.desiredMps
			r.cars = append(r.cars, x)
		}
		next = next[n:]
	}
	return next
}

// Settle lets the cars drive for d without reports.
func (f *Fleet) Settle(d time.Duration) {
	for end := f.now + d; f.now < end; {
		f.advance()
	}
	f.epoch = f.now
	f.schedule()
}

func (f *Fleet) schedule() {
	for _, c := range f.cars {
		c.due = f.now + time.Duration(f.tremble.Float64()*f.interval())
	}
}

func (f *Fleet) interval() float64 { return float64(time.Second) / f.config.PerSecond }

func (f *Fleet) Now() time.Duration { return f.now - f.epoch }

func (f *Fleet) Truth(i int) Truth {
	c := f.cars[i]
	t := Truth{Driving: c.truth, Since: c.change - f.epoch, Parked: c.place == parked}
	if c.truth != 0 {
		t.LimitKmh, t.OfFreeFlow = c.road.limitKmh, c.share
	}
	return t
}

// Step calls report for each report, on the clock of [Fleet.Now], in order.
func (f *Fleet) Step(report func(car int, at time.Duration, r signal.Readings)) {
	f.advance()
	for i, c := range f.cars {
		for c.due <= f.now {
			ago := (f.now - c.due).Seconds()
			r := c.read(f.tremble, c.due, ago, f.config.FreeFlow)
			if !f.config.WithoutPositions {
				c.locate(f.sky, c.due, ago, &r)
			}
			report(i, c.due-f.epoch, r)
			every := f.interval()
			if c.place == parked {
				every = max(every, float64(parkedEvery))
			}
			c.due += max(time.Millisecond, time.Duration(every*(0.8+0.4*f.tremble.Float64())))
		}
	}
}

// The target number of cars is low most of the time.
func (r *road) target(now time.Duration) float64 {
	height := (1 + math.Sin(2*math.Pi*float64(now)/float64(tide)+r.phase)) / 2
	return (r.fewestPerKm + r.swellPerKm*height*height) * r.lengthMeter / 1000
}

func (f *Fleet) advance() {
	f.now += Step
	for _, r := range f.roads {
		r.step(f.now)
	}
	wholeSecond := f.now%time.Second == 0
	if wholeSecond {
		f.exchange()
	}
	for _, c := range f.cars {
		switch c.place {
		case sideStreet:
			f.wander(c, wholeSecond)
		case parked:
			if f.now >= c.until {
				c.place, c.due = sideStreet, f.now // it reports that its ignition is on again
				f.idle = append(f.idle, c)
			}
		}
		if wholeSecond {
			c.learnTruth(f.now)
		}
	}
}

func (f *Fleet) exchange() {
	coming := make(map[*road]int)
	for _, c := range f.cars {
		if c.place == sideStreet && c.road != nil {
			coming[c.road]++
		}
	}
	for _, r := range f.roads {
		want := r.target(f.now) - float64(len(r.cars)+coming[r])
		restless := f.random.Float64() < float64(len(r.cars))/stay.Seconds()
		if len(r.cars) > 0 && (want < -1 || restless) {
			i := f.random.IntN(len(r.cars))
			c := r.cars[i]
			r.cars = slices.Delete(r.cars, i, i+1)
			c.place, c.road = sideStreet, nil
			c.left, _ = r.ring.at(c.meter)
			if c.parks = f.random.Float64() < parkingShare; !c.parks {
				f.idle = append(f.idle, c)
			}
		}
		if want > 1 && len(f.idle) > 0 {
			c := f.nearest(r.ring.middle)
			c.road, c.driver = r, r.kind.like(f.random)
			way := c.left.to(r.ring.middle) + r.ring.reachMeter()
			c.there = f.now + time.Duration(way/acrossMps*float64(time.Second))
		}
	}
}

func (f *Fleet) nearest(to point) *car {
	best := 0
	for i, c := range f.idle {
		if c.left.to(to) < f.idle[best].left.to(to) {
			best = i
		}
	}
	c := f.idle[best]
	f.idle = slices.Delete(f.idle, best, best+1)
	return c
}

// No other car is in the way in side streets.
func (f *Fleet) wander(c *car, wholeSecond bool) {
	want := sideStreetMps
	switch {
	case c.parks:
		want = 0
	case c.road != nil && f.now < c.there:
		want = acrossMps
	case c.road != nil:
		want = c.road.meanMps()
	}
	c.mps2 = max(-2, min(2, (want-c.mps)/stepSeconds))
	c.advance(stepSeconds)
	switch {
	case c.parks && c.mps == 0:
		c.place, c.parks, c.mps2, c.due = parked, false, 0, f.now // it reports that its ignition is off
		c.until = f.now + shortestPark + time.Duration(f.random.ExpFloat64()*float64(meanPark-shortestPark))
	case c.road != nil && f.now >= c.there && wholeSecond &&
		c.road.admit(c, f.random.IntN(max(1, len(c.road.cars))), f.now):
		c.place = onRoad
	}
}

func (c *car) learnTruth(now time.Duration) {
	var truth driving.State
	if c.place == onRoad {
		truth, c.share = c.road.state(c.meter)
	}
	if truth != c.truth {
		c.truth, c.change = truth, now
	}
}
