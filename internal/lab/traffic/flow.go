package traffic

import (
	"math"
	"math/rand/v2"
	"time"

	"example.org/carstate/internal/driving"
)

// flow is the mean speed on each part of a road in the window: distance of all cars by their time
// (Edie, 1963).
type flow struct {
	cells     []cell // of the whole window
	parts     [][]cell
	part      int // newest of parts
	partLasts time.Duration
	partEnds  time.Duration
}

type cell struct{ meter, seconds float64 }

const (
	// A road has a whole number of cells.
	cellMeter   = 50
	flowParts   = 12
	aroundMeter = 300 // in front and behind; on a short road, at most a quarter of it
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

// light is light traffic, with stops at red lights.
type light struct {
	aroundMps []float64
	meanMps   float64
}

// Cars spread out for lightSettle before lightWindow is measured.
const (
	lightSettle = 5 * time.Minute
	lightWindow = 20 * time.Minute
)

// newLight simulates the emptiest road, so that a part where a red light slows down all cars is
// compared with its own speed. It depends only on kind and length.
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

// The borders of the true states are 1.5 and 2.5 times the travel time in light traffic.
const (
	normalAbove = 2.0 / 3
	jamUpTo     = 2.0 / 5
)

func (r *road) state(meter float64) (state driving.State, share float64) {
	at := r.flow.at(meter)
	mps, ok := r.flow.around(at)
	if !ok {
		return 0, 0
	}
	share = mps / r.light.aroundMps[at]
	switch {
	case share > normalAbove:
		return driving.Normal, share
	case share > jamUpTo:
		return driving.Slow, share
	}
	return driving.Jam, share
}
