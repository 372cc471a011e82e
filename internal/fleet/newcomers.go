package fleet

import (
	"sync"
	"sync/atomic"
	"time"
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
// this time the newcomer may be dropped, because its samples may never have been stored.
const newcomerLife = 10 * time.Minute

func (c *newcomers) has(k key) bool {
	_, young := c.young[k]
	_, old := c.old[k]
	return young || old
}

// rotate drops the newcomers in old and moves those in young to old, if the last rotation is more
// than newcomerLife ago. The caller holds mu.
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
