package overload

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// connLimit is an adaptive limit on the open connections of a listener. It becomes
// active when the mean queueing delay exceeds maxMean and the minimum exceeds target.
// While it is active it follows the minimum: it shrinks while that is above target and
// grows while it is below. It is removed when fewer than half of the allowed
// connections are open. So an overloaded node finds out how many connections it can
// serve; a node that refused all newcomers for as long as the delay is long would admit
// all of them at once afterwards.
//
// A node serves most requests with as few connections as keep it busy: each sends its
// next request before it was descheduled, and stays in the processor's cache.
type connLimit struct {
	maxMean time.Duration // the mean above which the limit becomes active
	target  time.Duration // the minimum that an active limit aims at
	max     atomic.Int64  // unlimited, or the limit

	mu      sync.Mutex
	adapted time.Time // the last time
}

const unlimited = math.MaxInt64

// With minConnections or fewer, no connection is refused: if those wait for long, the
// machine is slow or busy with other work, and closing some would not help.
const (
	minConnections = 128
	adaptInterval  = 100 * time.Millisecond
)

// Far from the target, the limit changes by farStep. Near the target, it changes by
// nearStep of the relative error: the delay follows a change only after a while, and
// each connection that is closed and opened again costs as much as many answers.
const (
	farStep  = 0.25
	nearStep = 0.1
)

// factor is what the limit is multiplied by at a minimum of the delays.
func (a *connLimit) factor(delay time.Duration) float64 {
	switch {
	case delay > a.target*2:
		return 1 - farStep
	case delay < a.target/2:
		return 1 + farStep/2
	}
	return 1 + (float64(a.target)/float64(delay)-1)*nearStep
}

func newConnLimit(b Bounds) *connLimit {
	a := &connLimit{maxMean: b.MaxMean, target: b.Target}
	a.max.Store(unlimited)
	return a
}

// adapt takes the present delays and the number of open connections. It reports
// whether it has set the limit again.
func (a *connLimit) adapt(now time.Time, d delays, open int64) bool {
	limit := a.max.Load()
	if limit == unlimited && (d.mean <= a.maxMean || d.min <= a.target) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.adapted) < adaptInterval {
		return false
	}
	a.adapted = now
	switch {
	case d.min > a.target:
		// The limit stays near the number of open connections while none of them ends.
		limit = max(minConnections, open-open/4, int64(a.factor(d.min)*float64(min(limit, open))))
	case limit >= 2*max(open, minConnections):
		limit = unlimited
	default:
		limit = int64(math.Ceil(a.factor(d.min) * float64(limit)))
	}
	a.max.Store(limit)
	return true
}

// active reports whether there is a limit.
func (a *connLimit) active() bool { return a.max.Load() != unlimited }
