package roadmap

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
)

const MaxStretches = 20_000

// Reader makes one selection of its map at a time: concurrent calls wait for each other.
type Reader struct {
	road.Map

	mu    sync.Mutex // guards whole; held while stretches are selected
	whole Selection
}

// Selection is the traffic in a box, of stretches whose free-flow speed is known.
type Selection struct {
	At time.Time
	// Worst has at most [MaxStretches], the lowest share of free flow first, and those with too few
	// cars last. Selections share it, so it must not be changed.
	Worst []road.Condition
	// Known counts all stretches in the box, ByState by the [driving.State] of their traffic; 0:
	// unknown.
	Known   int
	ByState [4]int
	// Jams begin with the longest delay. Of a jam across the box's edge, only the part inside counts.
	Jams []Jam
}

// Within selects from a box. A selection from [road.World] may be up to 2 s old.
func (r *Reader) Within(box road.Box, now time.Time) Selection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if box != road.World {
		return r.read(box, now)
	}
	if now.Sub(r.whole.At) >= 2*time.Second {
		r.whole = r.read(box, now)
	}
	return r.whole
}

func (r *Reader) read(box road.Box, now time.Time) Selection {
	s := Selection{At: now}
	keep := func() {
		slices.SortFunc(s.Worst, worseFirst)
		s.Worst = s.Worst[:min(len(s.Worst), MaxStretches)]
	}
	r.ConditionsIn(box, signal.At(now), func(c road.Condition) {
		if c.FreeKmh == 0 {
			return
		}
		s.Known++
		s.ByState[c.State]++
		if s.Worst = append(s.Worst, c); len(s.Worst) == 2*MaxStretches {
			keep()
		}
	})
	keep()
	s.Jams = jams(s.Worst)
	return s
}

func worseFirst(a, b road.Condition) int {
	share := func(c road.Condition) float64 {
		if c.SpeedKmh == 0 {
			return math.Inf(1)
		}
		return c.SpeedKmh / c.FreeKmh
	}
	return cmp.Or(cmp.Compare(share(a), share(b)), cmp.Compare(a.Stretch, b.Stretch))
}
