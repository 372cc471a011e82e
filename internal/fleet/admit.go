package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// newcomers are the vehicles whose samples were taken in and that are not in the table yet: their
// states come later. They count against the bound, or the states on their way would pass it.
type newcomers struct {
	most atomic.Int64 // vehicles in the table and here; 0: no bound
	n    atomic.Int64 // in both maps, and those being looked at

	mu         sync.Mutex // guards what follows
	young, old map[key]struct{}
	turned     time.Time // when young became old
}

// newcomerLife is how long at least a vehicle is waited for whose samples may not have been stored.
const newcomerLife = 10 * time.Minute

// Bound sets how many vehicles [Table.Admit] lets in; 0 is no bound. Vehicles that the table holds stay.
func (t *Table) Bound(most int) { t.newcomers.most.Store(int64(most)) }

// Admit reports whether samples of a vehicle may be taken in: it is known, or was admitted before, or
// there is room for one more. A refusal changes nothing.
func (t *Table) Admit(id vehicle.ID) bool {
	c := &t.newcomers
	most := c.most.Load()
	if most == 0 {
		return true
	}
	s, k := t.findID(id)
	if _, known := s.find(k); known {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has(k) {
		return true
	}
	// From here on a Put of the vehicle looks here as well; one may have come just before.
	n := c.n.Add(1)
	if _, known := s.find(k); known {
		c.n.Add(-1)
		return true
	}
	if t.vehicles.Load()+n > most {
		c.n.Add(-1)
		c.turn() // those that never came make room
		return false
	}
	c.turn()
	c.young[k] = struct{}{}
	return true
}

func (c *newcomers) has(k key) bool {
	_, young := c.young[k]
	_, old := c.old[k]
	return young || old
}

// turn drops the newcomers that have not come for long; mu is held.
func (c *newcomers) turn() {
	if now := time.Now(); c.young == nil || now.Sub(c.turned) > newcomerLife {
		c.n.Add(-int64(len(c.old)))
		c.old, c.young, c.turned = c.young, make(map[key]struct{}), now
	}
}

// arrived notes that a vehicle is in the table, or is forgotten.
func (c *newcomers) arrived(k key) {
	if c.n.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has(k) {
		delete(c.young, k)
		delete(c.old, k)
		c.n.Add(-1)
	}
}
