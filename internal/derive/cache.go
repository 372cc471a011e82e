package derive

import "carstate/internal/vehicle"

// cache remembers the states of the vehicles that were heard of last. All of
// them are stored, so any of them may be forgotten at any time.
type cache struct {
	limit int // entries; at least 1
	index map[vehicle.ID]int32
	// entries form a ring from the one used last to the one used longest ago.
	// They are in a slice and refer to each other by place, because a pointer
	// each would make the garbage collector walk them all.
	entries []entry
	newest  int32 // place of the entry used last, if there is one
}

type entry struct {
	id           vehicle.ID
	state        vehicle.State
	newer, older int32
}

func newCache(limit int) *cache {
	return &cache{limit: limit, index: make(map[vehicle.ID]int32)}
}

// get returns a vehicle's state, which counts as using it.
func (c *cache) get(id vehicle.ID) (vehicle.State, bool) {
	i, ok := c.index[id]
	if !ok {
		return vehicle.State{}, false
	}
	c.use(i)
	return c.entries[i].state, true
}

// put remembers a vehicle's state, in place of the one used longest ago if there
// are too many.
func (c *cache) put(id vehicle.ID, s vehicle.State) {
	i, ok := c.index[id]
	switch {
	case ok:
		c.use(i)
	case len(c.entries) < c.limit:
		i = int32(len(c.entries))
		c.entries = append(c.entries, entry{newer: i, older: i})
		if i > 0 {
			c.link(i)
		}
		c.newest = i
		c.index[id] = i
	default:
		// The ring closes: the oldest is next to the newest.
		i = c.entries[c.newest].newer
		delete(c.index, c.entries[i].id)
		c.newest = i
		c.index[id] = i
	}
	c.entries[i].id, c.entries[i].state = id, s
}

// use makes entry i the one used last.
func (c *cache) use(i int32) {
	if i == c.newest {
		return
	}
	e := &c.entries[i]
	c.entries[e.newer].older, c.entries[e.older].newer = e.older, e.newer
	c.link(i)
	c.newest = i
}

// link puts entry i, which is not in the ring, before the newest.
func (c *cache) link(i int32) {
	oldest := c.entries[c.newest].newer
	c.entries[i].older, c.entries[i].newer = c.newest, oldest
	c.entries[c.newest].newer, c.entries[oldest].older = i, i
}
