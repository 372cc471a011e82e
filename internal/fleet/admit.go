package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// newcomers are vehicles that were admitted but are not in the table yet, because no state has been
// computed from their first samples. They count towards the limit of vehicles. Otherwise the table
// would exceed the limit when their states arrive.
type newcomers struct {
	most atomic.Int64 // limit of vehicles in the table and newcomers together; 0 means no limit
	n    atomic.Int64 // number of vehicles in young and old, and of those that Admit is checking

	mu         sync.Mutex // guards the fields below
	young, old map[key]struct{}
	rotated    time.Time // when young last became old
}

// newcomerLife is the minimum time for which a newcomer counts towards the limit of vehicles. After
// that it is dropped, because its samples may never have been stored.
const newcomerLife = 10 * time.Minute

// Bound sets the maximum number of vehicles, beyond which [Table.Admit] refuses new vehicles. 0
// means no limit. Vehicles that are in the table already stay there.
func (t *Table) Bound(most int) { t.newcomers.most.Store(int64(most)) }

// Admit reports whether samples of a vehicle may be accepted. They may if the vehicle is in the
// table or was admitted before, or if the limit allows one more vehicle. In the last case Admit
// records the vehicle as admitted.
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
	// From here on, a concurrent Put of the vehicle finds n > 0 and calls remove. But a Put may
	// have added the vehicle just before, so check the table again.
	n := c.n.Add(1)
	if _, known := s.find(k); known {
		c.n.Add(-1)
		return true
	}
	if t.vehicles.Load()+n > most {
		c.n.Add(-1)
		c.rotate() // may drop newcomers whose states never arrived
		return false
	}
	c.rotate()
	c.young[k] = struct{}{}
	return true
}

func (c *newcomers) has(k key) bool {
	_, young := c.young[k]
	_, old := c.old[k]
	return young || old
}

// rotate drops the newcomers in old and moves those in young to old, if newcomerLife has passed
// since it last did so. So each newcomer is kept for at least newcomerLife. The caller holds mu.
func (c *newcomers) rotate() {
	if now := time.Now(); c.young == nil || now.Sub(c.rotated) > newcomerLife {
		c.n.Add(-int64(len(c.old)))
		c.old, c.young, c.rotated = c.young, make(map[key]struct{}), now
	}
}

// remove removes a vehicle from the newcomers, because it is in the table or was deleted.
func (c *newcomers) remove(k key) {
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
