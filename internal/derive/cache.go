package derive

import (
	"container/list"

	"example.org/carstate/internal/vehicle"
)

// cache holds the states of the vehicles that reported most recently, except those that are being
// folded or stored. It holds only states that are also in the store, so any entry may be evicted at
// any time.
type cache struct {
	limit int // maximum number of entries, at least 1
	index map[vehicle.ID]*list.Element
	order list.List // of *touched, the last one that was put first
}

func newCache(limit int) *cache {
	return &cache{limit: limit, index: make(map[vehicle.ID]*list.Element)}
}

// take removes a vehicle from the cache and returns it. If the cache does not have the vehicle, the
// result is nil.
func (c *cache) take(id vehicle.ID) *touched {
	e := c.index[id]
	if e == nil {
		return nil
	}
	delete(c.index, id)
	return c.order.Remove(e).(*touched)
}

// put adds a vehicle that is not in the cache. If the cache is full, put evicts the vehicle that
// was put first.
func (c *cache) put(t *touched) {
	if len(c.index) == c.limit {
		c.take(c.order.Back().Value.(*touched).id)
	}
	c.index[t.id] = c.order.PushFront(t)
}
