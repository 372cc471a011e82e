package derive

import "carstate/internal/vehicle"

// cache remembers the states of the vehicles that were heard of last. All of
// them are stored, so any of them may be forgotten at any time.
type cache struct {
	limit int // entries; at least 1
	index map[vehicle.ID]int32
	// The entries form a ring from the one used last to the one used longest ago. They refer
	// to each other by place, because a pointer each would make the garbage collector walk
	// them all, and are in chunks, because a slice that grows is in memory twice.
	chunks [][]entry
	used   int32 // entries in use
	newest int32 // place of the entry used last, if there is one
}

// chunkEntries is how many entries a chunk has, about 25 KB: a partition can have few vehicles.
const chunkEntries = 16

type entry struct {
	id           vehicle.ID
	state        vehicle.State
	newer, older int32
}

func newCache(limit int) *cache {
	return &cache{limit: limit, index: make(map[vehicle.ID]int32)}
}

// at is the entry at a place.
func (c *cache) at(i int32) *entry { return &c.chunks[i/chunkEntries][i%chunkEntries] }

// get returns a vehicle's state, which counts as using it.
func (c *cache) get(id vehicle.ID) (vehicle.State, bool) {
	i, ok := c.index[id]
	if !ok {
		return vehicle.State{}, false
	}
	c.use(i)
	return c.at(i).state, true
}

// put remembers a vehicle's state, in place of the one used longest ago if there
// are too many.
func (c *cache) put(id vehicle.ID, s vehicle.State) {
	i, ok := c.index[id]
	switch {
	case ok:
		c.use(i)
	case int(c.used) < c.limit:
		i = c.used
		if i%chunkEntries == 0 {
			c.chunks = append(c.chunks, make([]entry, min(chunkEntries, c.limit-int(i))))
		}
		c.used++
		c.at(i).newer, c.at(i).older = i, i
		if i > 0 {
			c.link(i)
		}
		c.newest = i
		c.index[id] = i
	default:
		// The ring closes: the oldest is next to the newest.
		i = c.at(c.newest).newer
		delete(c.index, c.at(i).id)
		c.newest = i
		c.index[id] = i
	}
	e := c.at(i)
	e.id, e.state = id, s
}

// use makes entry i the one used last.
func (c *cache) use(i int32) {
	if i == c.newest {
		return
	}
	e := c.at(i)
	c.at(e.newer).older, c.at(e.older).newer = e.older, e.newer
	c.link(i)
	c.newest = i
}

// link puts entry i, which is not in the ring, before the newest.
func (c *cache) link(i int32) {
	oldest := c.at(c.newest).newer
	c.at(i).older, c.at(i).newer = c.newest, oldest
	c.at(c.newest).newer, c.at(oldest).older = i, i
}
