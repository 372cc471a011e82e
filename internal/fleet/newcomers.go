package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

// newcomers are admitted vehicles without a state. They count, lest the table exceeds its
// limit when their states arrive.
type newcomers struct {
	most atomic.Int64 // vehicles, also of the table; 0 means no limit
	n    atomic.Int64 // of young and old, and of those that Admit is checking

	mu         sync.Mutex // guards the fields below
	young, old map[key]struct{}
	rotated    time.Time
}

// A newcomer is dropped after this to twice this: its samples may never have been stored.
const newcomerLife = 10 * time.Minute

func (c *newcomers) has(k key) bool {
	_, young := c.young[k]
	_, old := c.old[k]
	return young || old
}

// rotate is called with mu locked.
func (c *newcomers) rotate() {
	if now := time.Now(); c.young == nil || now.Sub(c.rotated) > newcomerLife {
		c.n.Add(-int64(len(c.old)))
		c.old, c.young, c.rotated = c.young, make(map[key]struct{}), now
	}
}

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
