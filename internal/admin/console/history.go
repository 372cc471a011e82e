package console

import (
	"sync"
	"time"
)

// The history keeps the fleet's counts of one day in memory, one point per minute, about 60 KB.
// Only the chart uses it, and it is lost when the process ends; Prometheus can keep such data for
// longer.
const (
	historyStep   = time.Minute
	historyPoints = 24 * 60
)

// point holds the fleet's counts at one minute.
type point struct {
	at                                time.Time
	normal, slow, jam, other, anomaly int32
}

// history is a ring buffer of the fleet's counts, one point per minute.
type history struct {
	mu     sync.Mutex // guards points and next
	points []point    // a ring once it is full
	next   int        // where the next point is written once points is full
}

func pointOf(s FleetCounts) point {
	return point{
		at: s.At, normal: int32(s.Normal), slow: int32(s.Slow), jam: int32(s.Jam),
		other: int32(s.Vehicles - s.Normal - s.Slow - s.Jam), anomaly: int32(s.Anomaly),
	}
}

func (h *history) add(p point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.points) < historyPoints {
		h.points = append(h.points, p)
		return
	}
	h.points[h.next] = p
	h.next = (h.next + 1) % historyPoints
}

// since returns the points at or after t, oldest first.
func (h *history) since(t time.Time) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]point, 0, len(h.points))
	for i := range h.points {
		if p := h.points[(h.next+i)%len(h.points)]; !p.at.Before(t) {
			all = append(all, p)
		}
	}
	return all
}
