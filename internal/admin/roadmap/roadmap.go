package roadmap

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/carstate/internal/road"
	"example.org/carstate/internal/vehicle"
)

// MaxStretches is the maximum number of stretches in one answer to a request for traffic.
const MaxStretches = 20_000

// keepFor is the time for which the selection of [Reader.All] is cached.
const keepFor = 2 * time.Second

// world is a box around all of the earth.
var world = road.Box{West: -180, South: -90, East: 180, North: 90}

// Reader selects stretches from a map of the roads. It makes only one selection at a time, so
// concurrent calls wait for each other. Make a Reader with [NewReader].
type Reader struct {
	roads *road.Map

	mu    sync.Mutex // guards whole; held while stretches are selected
	whole Selection
}

// NewReader returns a reader of this map of the roads.
func NewReader(roads *road.Map) *Reader { return &Reader{roads: roads} }

// Selection describes the traffic in a box (an area of the map) at one time. It includes only
// stretches whose free-flow speed is known.
type Selection struct {
	At time.Time
	// Worst holds at most [MaxStretches] stretches. The stretch with the lowest share of its
	// free-flow speed is first; stretches with too few cars at present are last. Several Selections
	// share the slice, so it must not be changed.
	Worst []road.Condition
	// Known is the number of stretches in the box whose free-flow speed is known. ByState has the
	// number of them in each driving state, by the number of the state; 0 stands for an unknown
	// state.
	Known   int
	ByState [4]int
	// Jams are the groups of neighbouring stretches in a jam, the one with the longest delay first.
	// A jam that the box cuts has only its part in the box.
	Jams []Jam
}

// All returns the selection of stretches on all of the earth. It may be up to keepFor old.
func (r *Reader) All(now time.Time) Selection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := now.Sub(r.whole.At); age < 0 || age >= keepFor {
		r.whole = r.read(world, now)
	}
	return r.whole
}

// Within returns the selection of stretches in a box. For the box of all of the earth, it returns
// what [Reader.All] returns; for any other box, it reads the map.
func (r *Reader) Within(box road.Box, now time.Time) Selection {
	if box == world {
		return r.All(now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read(box, now)
}

// read makes the selection of stretches in a box. At any time, it holds at most 2*MaxStretches
// stretches in memory.
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
	s.Jams = jams(s.Worst)
	return s
}

// Share returns the present speed on a stretch as a share of its free-flow speed. ok is false if
// one of the two speeds is unknown, for example because too few cars are on the stretch.
func Share(c road.Condition) (share float64, ok bool) {
	if c.SpeedKmh == 0 || c.FreeKmh == 0 {
		return 0, false
	}
	return c.SpeedKmh / c.FreeKmh, true
}

// worseFirst sorts stretches by their share. Those without a share are last.
func worseFirst(a, b road.Condition) int {
	share := func(c road.Condition) float64 {
		if share, ok := Share(c); ok {
			return share
		}
		return math.Inf(1)
	}
	return cmp.Or(cmp.Compare(share(a), share(b)), cmp.Compare(a.Stretch, b.Stretch))
}
