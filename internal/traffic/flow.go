package traffic

import (
	"math"
	"time"

	"carstate/internal/vehicle"
)

// flow measures the mean speed on each part of a road over the last minute or so:
// the way that all cars went there, over the time that they took (L. C. Edie's
// definition, 1963).
type flow struct {
	cellMeter float64
	cells     []cell // now, as sums over the window
	parts     [][]cell
	part      int // the newest of parts
	partLasts time.Duration
	partEnds  time.Duration // when the next one begins
}

// cell sums up what happened on a short piece of the road.
type cell struct{ meter, seconds float64 }

const (
	aboutCellMeter = 50
	flowParts      = 12
	// aroundMeter is how far the road around a car reaches, before and behind.
	aroundMeter = 250
)

func newFlow(lengthMeter float64, window time.Duration) flow {
	n := int(max(4, math.Round(lengthMeter/aboutCellMeter)))
	f := flow{cellMeter: lengthMeter / float64(n), cells: make([]cell, n), partLasts: window / flowParts, partEnds: window / flowParts}
	for range flowParts {
		f.parts = append(f.parts, make([]cell, n))
	}
	return f
}

func (f *flow) at(meter float64) int { return min(int(meter/f.cellMeter), len(f.cells)-1) }

func (f *flow) add(at, meter, seconds float64) {
	i := f.at(at)
	for _, c := range []*cell{&f.cells[i], &f.parts[f.part][i]} {
		c.meter += meter
		c.seconds += seconds
	}
}

// tick forgets what is older than the window.
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

// around is the mean speed on the road around a place, in m/s; ok is false if no
// car was there.
func (f *flow) around(meter float64) (mps float64, ok bool) {
	n := len(f.cells)
	reach := min(int(aroundMeter/f.cellMeter), n/4)
	var sum cell
	for k := f.at(meter) - reach; k <= f.at(meter)+reach; k++ {
		c := f.cells[(k+n)%n]
		sum.meter += c.meter
		sum.seconds += c.seconds
	}
	if sum.seconds < stepSeconds/2 { // rounding may leave crumbs
		return 0, false
	}
	return sum.meter / sum.seconds, true
}

// The Highway Capacity Manual 2010 (chapters 16 and 17) grades a street by its
// travel speed over its free-flow speed: at most 30 % is level of service F, traffic
// that has broken down; up to 50 % levels E and D, unstable or nearly so; above are the
// levels of stable flow. For motorways it uses density; we take the same shares.
const (
	jamBelow  = 0.30
	slowBelow = 0.50
)

// state is how traffic flows around a place on the road, and at what share of the
// free flow.
func (r *road) state(meter float64) (state vehicle.DrivingState, share float64) {
	mps, ok := r.flow.around(meter)
	share = mps * 3.6 / r.freeFlowKmh
	switch {
	case !ok:
		return 0, 0
	case share <= jamBelow:
		return vehicle.TrafficJam, share
	case share <= slowBelow:
		return vehicle.SlowDriving, share
	}
	return vehicle.NormalDriving, share
}
