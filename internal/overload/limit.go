package overload

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// connLimit is an adaptive limit on the number of open connections of a listener. It depends on two
// queueing delays that a [Probe] measures: the mean delay, and the minimum of the recent delays.
//
// The limit becomes active when the mean exceeds MaxMean and the minimum exceeds Target. While the
// limit is active, it decreases if the minimum exceeds Target, and increases if the minimum is
// below Target. The limit is removed when two conditions hold: the minimum is at most Target, and
// the limit is at least twice the number of open connections and at least twice minConnections.
//
// So an overloaded node finds the number of connections that it can serve. The simpler method, to
// refuse all new connections while the delay is long, would admit all of them at once when the
// delay is short again. A node serves the most requests if it has just enough connections to be
// always busy. Then the next request of a connection arrives before the connection's goroutine is
// descheduled, while its data are still in the processor's cache.
type connLimit struct {
	Bounds
	max atomic.Int64 // the limit, or unlimited

	// mu guards adapted. It is also held while max is changed, so that two changes of max are at
	// least adaptInterval apart.
	mu      sync.Mutex
	adapted time.Time // the time of the last change
}

const unlimited = math.MaxInt64

// The limit on connections is at least minConnections, and changes at most once in adaptInterval.
// If the delay is long with fewer connections than minConnections, the machine is slow or busy with
// other work, and closing connections would not help.
const (
	minConnections = 128
	adaptInterval  = 100 * time.Millisecond
)

// farStep and nearStep determine how much the limit on connections changes at a time. If the
// minimum queueing delay is more than twice the target, the limit is multiplied by 1 − farStep. If
// the delay is less than half the target, the limit is multiplied by 1 + farStep/2. Otherwise the
// limit is multiplied by 1 + nearStep × (target/delay − 1). The steps are small for two reasons: a
// change of the limit affects the delay only after some time, and each connection that is closed
// and opened again costs as much as many answers.
const (
	farStep  = 0.25
	nearStep = 0.1
)

func (a *connLimit) factor(delay time.Duration) float64 {
	switch {
	case delay > a.Target*2:
		return 1 - farStep
	case delay < a.Target/2:
		return 1 + farStep/2
	}
	return 1 + (float64(a.Target)/float64(delay)-1)*nearStep
}

func newConnLimit(b Bounds) *connLimit {
	a := &connLimit{Bounds: b}
	a.max.Store(unlimited)
	return a
}

// adapt computes the limit again from the delays d and the number of open connections. It reports
// whether it has set the limit, perhaps to unlimited. It does nothing and returns false in two
// cases: the last change was less than adaptInterval ago, or the limit is not active and the delays
// do not make it active.
func (a *connLimit) adapt(now time.Time, d delays, open int64) bool {
	limit := a.max.Load()
	if limit == unlimited && (d.mean <= a.MaxMean || d.min <= a.Target) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.adapted) < adaptInterval {
		return false
	}
	a.adapted = now
	switch {
	case d.min > a.Target:
		// One change reduces the limit at most to three quarters of the number of open connections.
		// So the limit decreases further only after some connections have ended.
		limit = max(minConnections, open-open/4, int64(a.factor(d.min)*float64(min(limit, open))))
	case limit >= 2*max(open, minConnections):
		limit = unlimited
	default:
		limit = int64(math.Ceil(a.factor(d.min) * float64(limit)))
	}
	a.max.Store(limit)
	return true
}

// active reports whether the number of connections is limited at present.
func (a *connLimit) active() bool { return a.max.Load() != unlimited }
