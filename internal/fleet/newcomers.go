package fleet

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// newcomers are admitted vehicles without a state. They count, lest the table exceeds its
// limit when their states arrive.
type newcomers struct {
	most atomic.Int64 // vehicles, also of the table; 0 means no limit
	n    atomic.Int64 // of admitted, and of those that Admit is checking

	mu       sync.Mutex // guards the fields below
	admitted map[key]time.Time
	expired  time.Time
}

// A newcomer is dropped after this to twice this: its samples may never have been stored.
const newcomerLife = 10 * time.Minute

// expire is called with mu locked.
func (c *newcomers) expire() {
	now, before := time.Now(), len(c.admitted)
	if now.Sub(c.expired) > newcomerLife {
		maps.DeleteFunc(c.admitted, func(_ key, at time.Time) bool { return now.Sub(at) > newcomerLife })
		c.n.Add(int64(len(c.admitted) - before))
		c.expired = now
	}
}

func (c *newcomers) remove(k key) {
	if c.n.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, admitted := c.admitted[k]; admitted {
		delete(c.admitted, k)
		c.n.Add(-1)
	}
}
