package main

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/broken"
)

// allowance is how many connections a listener may have open. There is no limit
// while what arrives waits less than wait for its turn. Once it waits longer, there
// are too many: the limit is a little less than are open. It goes down with them for
// as long as they wait too long, then up again, and is lifted when not half as many are
// open. So an overloaded node finds out how many it can serve, where one that
// only refused everybody for as long as they wait would let all in at once next.
type allowance struct {
	wait time.Duration
	most atomic.Int64 // unlimited, or the limit

	mu      sync.Mutex
	adapted time.Time // when it was last
}

const unlimited = math.MaxInt64

// With fewCallers connections or less, nobody is refused: where they wait for long,
// the machine is slow, or busy with others, and to be rid of some would not help.
const (
	fewCallers = 128
	adaptTime  = 100 * time.Millisecond // from one change to the next
)

// Where the wait is far from what is borne, the limit changes by farChange. Near it,
// by nearChange of what the wait is off by: the wait follows a change only after a
// while, and each connection that goes and comes again costs as much as many answers.
const (
	farChange  = 0.125
	nearChange = 0.1
)

// change is what the limit is to be multiplied by.
func (a *allowance) change(wait time.Duration) float64 {
	switch {
	case wait > a.wait*3/2:
		return 1 - farChange
	case wait < a.wait/2:
		return 1 + farChange
	}
	return 1 + (float64(a.wait)/float64(wait)-1)*nearChange
}

func newAllowance(wait time.Duration) *allowance {
	a := &allowance{wait: wait}
	a.most.Store(unlimited)
	return a
}

// adapt is told how long what arrives waits now, and how many connections are open.
func (a *allowance) adapt(now time.Time, wait time.Duration, open int64) {
	most := a.most.Load()
	if most == unlimited && wait <= a.wait || broken.Has(broken.NoShedding) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.adapted) < adaptTime {
		return
	}
	a.adapted = now
	switch {
	case wait > a.wait:
		// Where nobody goes, it does not sink far below those who are open.
		most = max(fewCallers, open-open/4, int64(a.change(wait)*float64(min(most, open))))
	case most >= 2*max(open, fewCallers):
		most = unlimited
	default:
		most = int64(math.Ceil(a.change(wait) * float64(most)))
	}
	a.most.Store(most)
}

// limited reports whether there is a limit.
func (a *allowance) limited() bool { return a.most.Load() != unlimited }
