package derive

import "carstate/internal/vehicle"

// cache is an LRU cache of the states of the vehicles that reported most recently. It holds only
// states that are also in the store, so any entry may be evicted at any time.
type cache struct {
	limit int // maximum number of entries, at least 1
	index map[vehicle.ID]int32
	// The entries form a ring, from the most recently used to the least recently used. They refer
	// to each other by index and not by pointer, because the garbage collector would have to scan
	// pointers. They are in chunks of fixed size, because a slice that grows needs memory for its
	// old and its new array at the same time.
	chunks [][]entry
	used   int32 // number of entries in use
	newest int32 // index of the most recently used entry, if there is one
}

// chunkEntries is the number of states in a chunk, which takes about 25 KB. It is small so that a
// partition with few vehicles does not reserve memory for many.
const chunkEntries = 16

type entry struct {
	id           vehicle.ID
	state        vehicle.State
	newer, older int32
}

func newCache(limit int) *cache {
	return &cache{limit: limit, index: make(map[vehicle.ID]int32)}
}

// at returns the entry with index i.
func (c *cache) at(i int32) *entry { return &c.chunks[i/chunkEntries][i%chunkEntries] }

// get returns a vehicle's state and makes it the most recently used. The second result is false if
// the cache does not have the vehicle.
func (c *cache) get(id vehicle.ID) (vehicle.State, bool) {
	i, ok := c.index[id]
	if !ok {
		return vehicle.State{}, false
	}
	c.use(i)
	return c.at(i).state, true
}

// put stores a vehicle's state. If the cache is full, put evicts the least recently used state.
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
		// In the ring, the oldest entry is next to the newest. Reuse the oldest.
		i = c.at(c.newest).newer
		delete(c.index, c.at(i).id)
		c.newest = i
		c.index[id] = i
	}
	e := c.at(i)
	e.id, e.state = id, s
}

// use makes entry i the most recently used.
func (c *cache) use(i int32) {
	if i == c.newest {
		return
	}
	e := c.at(i)
	c.at(e.newer).older, c.at(e.older).newer = e.older, e.newer
	c.link(i)
	c.newest = i
}

// link inserts entry i, which is not in the ring, between the newest and the oldest entry.
func (c *cache) link(i int32) {
	oldest := c.at(c.newest).newer
	c.at(i).older, c.at(i).newer = c.newest, oldest
	c.at(c.newest).newer, c.at(oldest).older = i, i
}
