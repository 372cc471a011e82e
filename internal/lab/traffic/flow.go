package traffic

import (
	"math"
	"math/rand/v2"
	"time"

	"example.org/carstate/internal/vehicle"
)

// flow measures the mean speed of the cars on each part of a road over the last minutes. This
// period is called the window. The mean speed is the distance that all cars drove on the part,
// divided by the time that they took (L. C. Edie's definition, 1963).
type flow struct {
	cells     []cell // sums over the whole window
	parts     [][]cell
	part      int // index of the newest of parts
	partLasts time.Duration
	partEnds  time.Duration // when the next part begins
}

// cell has the sums of the metres and seconds that cars drove on a short piece of a road.
type cell struct{ meter, seconds float64 }

const (
	// cellMeter is the length of a cell; a road has a whole number of cells.
	cellMeter = 50
	flowParts = 12
	// aroundMeter is how far the road around a car extends, in front of the car and behind it, when
	// the true state of the traffic there is measured. On a short road, it is at most a quarter of
	// the road.
	aroundMeter = 300
)

func newFlow(lengthMeter float64, window time.Duration) flow {
	n := int(math.Round(lengthMeter / cellMeter))
	f := flow{cells: make([]cell, n), partLasts: window / flowParts, partEnds: window / flowParts}
	for range flowParts {
		f.parts = append(f.parts, make([]cell, n))
	}
	return f
}

func (f *flow) at(meter float64) int { return min(int(meter/cellMeter), len(f.cells)-1) }

func (f *flow) add(at, meter, seconds float64) {
	i := f.at(at)
	for _, c := range []*cell{&f.cells[i], &f.parts[f.part][i]} {
		c.meter += meter
		c.seconds += seconds
	}
}

// tick removes what is older than the window from the sums. It is called at each step of time.
func (f *flow) tick(now time.Duration) {
	if now < f.partEnds {
		return
	}
	f.partEnds += f.partLasts
	f.part = (f.part + 1) % flowParts
	for i, old := range f.parts[f.part] {
		f.cells[i].meter -= old.meter
		f.cells[i].seconds -= old.seconds
	}
	clear(f.parts[f.part])
}

// around returns the mean speed of the cars in the last minutes, in m/s, on the part of the road
// around the i-th cell. If no car was on this part in that time, ok is false and mps is 0.
func (f *flow) around(i int) (mps float64, ok bool) {
	n := len(f.cells)
	reach := min(aroundMeter/cellMeter, n/4)
	var sum cell
	for k := i - reach; k <= i+reach; k++ {
		c := f.cells[(k+n)%n]
		sum.meter += c.meter
		sum.seconds += c.seconds
	}
	if sum.seconds < stepSeconds/2 { // rounding errors may remain
		return 0, false
	}
	return sum.meter / sum.seconds, true
}

// light has the mean speeds of cars on a road in light traffic. Stops at red lights are included.
type light struct {
	aroundMps []float64 // around each cell
	meanMps   float64   // of the whole ring
}

// Light traffic is measured for lightWindow. Before that, the cars drive for lightSettle, so that
// they spread out.
const (
	lightSettle = 5 * time.Minute
	lightWindow = 20 * time.Minute
)

// newLight measures light traffic: it simulates a road of the kind k and the given length, with as
// few cars as such a road has when it is emptiest, and measures their mean speed around each cell.
// So a part of the road where a red light slows down all cars is compared with its own speed in
// light traffic. The drivers are drawn from a fixed seed, so the result depends only on the kind
// and the length of the road.
func newLight(k *kind, lengthMeter float64) light {
	measured := *k
	measured.window = lightWindow
	r := newRoad(&measured, lengthMeter)
	random := rand.New(rand.NewPCG(1, 1))
	n := max(1, int(k.fewestPerKm*lengthMeter/1000))
	for i := range n {
		c := &car{road: r, driver: k.like(random)}
		c.meter, c.mps = lengthMeter*float64(i)/float64(n), c.desiredMps/2
		r.cars = append(r.cars, c)
	}
	for now := Step; now <= lightSettle+lightWindow; now += Step {
		r.step(now)
	}
	var all light
	var sum cell
	for i, c := range r.flow.cells {
		mps, _ := r.flow.around(i) // each cell was passed many times
		all.aroundMps = append(all.aroundMps, mps)
		sum.meter += c.meter
		sum.seconds += c.seconds
	}
	all.meanMps = sum.meter / sum.seconds
	return all
}

// The borders between the true states, as shares of the speed in light traffic. They correspond to
// travel times of 1.5 and 2.5 times that in light traffic.
const (
	normalAbove = 2.0 / 3
	jamUpTo     = 2.0 / 5
)

// state returns the driving state of the traffic around a position on the road, and the speed of
// the traffic divided by its speed there in light traffic. If no car was there in the last minutes,
// both results are 0.
func (r *road) state(meter float64) (state vehicle.DrivingState, share float64) {
	at := r.flow.at(meter)
	mps, ok := r.flow.around(at)
	if !ok {
		return 0, 0
	}
	share = mps / r.light.aroundMps[at]
	switch {
	case share > normalAbove:
		return vehicle.NormalDriving, share
	case share > jamUpTo:
		return vehicle.SlowDriving, share
	}
	return vehicle.TrafficJam, share
}
