package roadmap

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// MaxStretches is how many stretches are shown at most.
const MaxStretches = 20_000

// keepFor is how long a selection from all of the earth is shown to others as well.
const keepFor = 2 * time.Second

// world is all of the earth.
var world = road.Box{West: -180, South: -90, East: 180, North: 90}

// Reader reads the roads for those who look at them. It walks through them for one at
// a time. Make one with [NewReader].
type Reader struct {
	roads *road.Map

	mu    sync.Mutex // held while the roads are read
	whole Selection
}

// NewReader makes a reader of the roads.
func NewReader(roads *road.Map) *Reader { return &Reader{roads: roads} }

// Selection is how traffic moves on the stretches of a box at one time.
type Selection struct {
	At time.Time
	// Worst are the stretches, at most [MaxStretches], beginning with the lowest share
	// of the free flow. Those on which too few cars are now come last. It is shared.
	Worst []road.Condition
	// Known is how many there are in all, and ByState how many of each state.
	Known   int
	ByState [4]int
}

// All selects from all of the earth, as of now or up to 2 s before.
func (r *Reader) All(now time.Time) Selection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := now.Sub(r.whole.At); age < 0 || age >= keepFor {
		r.whole = r.read(world, now)
	}
	return r.whole
}

// Within selects from a box.
func (r *Reader) Within(box road.Box, now time.Time) Selection {
	if box == world {
		return r.All(now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read(box, now)
}

// read keeps at most twice as many stretches as it returns.
func (r *Reader) read(box road.Box, now time.Time) Selection {
	s := Selection{At: now}
	keep := func() {
		slices.SortFunc(s.Worst, worseFirst)
		s.Worst = s.Worst[:min(len(s.Worst), MaxStretches)]
	}
	r.roads.ConditionsIn(box, vehicle.At(now), func(c road.Condition) bool {
		if c.FreeKmh == 0 {
			return true
		}
		s.Known++
		s.ByState[c.State]++
		if s.Worst = append(s.Worst, c); len(s.Worst) == 2*MaxStretches {
			keep()
		}
		return true
	})
	keep()
	return s
}

// Share is the present speed as a share of the free flow; ok is false where too few
// cars show the present.
func Share(c road.Condition) (share float64, ok bool) {
	if c.SpeedKmh == 0 || c.FreeKmh == 0 {
		return 0, false
	}
	return c.SpeedKmh / c.FreeKmh, true
}

func worseFirst(a, b road.Condition) int {
	shareA, nowA := Share(a)
	shareB, nowB := Share(b)
	switch {
	case nowA != nowB && nowA:
		return -1
	case nowA != nowB:
		return 1
	}
	return cmp.Or(cmp.Compare(shareA, shareB), cmp.Compare(a.Stretch, b.Stretch))
}
