package main

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// allowance is how many connections a listener may have open. There is no limit
// until what arrives waits longer than wait for its turn, and none of it less than
// aim. From then on the limit follows the least wait: down while that is above aim, up
// while it is below. It is lifted when not half as many are open. So an overloaded
// node finds out how many it can serve, where one that only refused everybody for as
// long as they wait would let all in at once next.
//
// With as few connections as keep it busy, a node does most: each is asked again
// before it was put aside, and stays in the processor's cache.
type allowance struct {
	wait time.Duration // the mean with which there begins to be a limit
	aim  time.Duration // the least wait that is borne from then on
	most atomic.Int64  // unlimited, or the limit

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

// Where the least wait is far from what is borne, the limit changes by farChange. Near
// it, by nearChange of what the wait is off by: the wait follows a change only after a
// while, and each connection that goes and comes again costs as much as many answers.
const (
	farChange  = 0.25
	nearChange = 0.1
)

// change is what the limit is to be multiplied by.
func (a *allowance) change(least time.Duration) float64 {
	switch {
	case least > a.aim*2:
		return 1 - farChange
	case least < a.aim/2:
		return 1 + farChange/2
	}
	return 1 + (float64(a.aim)/float64(least)-1)*nearChange
}

func newAllowance(wait, aim time.Duration) *allowance {
	a := &allowance{wait: wait, aim: aim}
	a.most.Store(unlimited)
	return a
}

// adapt is told how long what arrives waits now, and how many connections are open.
// It reports whether the limit was looked at again.
func (a *allowance) adapt(now time.Time, w waits, open int64) bool {
	most := a.most.Load()
	if most == unlimited && (w.mean <= a.wait || w.least <= a.aim) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.adapted) < adaptTime {
		return false
	}
	a.adapted = now
	switch {
	case w.least > a.aim:
		// Where nobody goes, it does not sink far below those who are open.
		most = max(fewCallers, open-open/4, int64(a.change(w.least)*float64(min(most, open))))
	case most >= 2*max(open, fewCallers):
		most = unlimited
	default:
		most = int64(math.Ceil(a.change(w.least) * float64(most)))
	}
	a.most.Store(most)
	return true
}

// limited reports whether there is a limit.
func (a *allowance) limited() bool { return a.most.Load() != unlimited }
