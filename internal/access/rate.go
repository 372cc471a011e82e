package access

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Rate limits the calls of a token, or the samples of a source. It allows a burst of at most Calls.
// Used calls become available again at an even rate, Calls per Window. The zero Rate is no limit.
// [ParseRate] gives the valid values.
type Rate struct {
	Calls  int64
	Window time.Duration
}

// maxCalls is the maximum number of calls in a rate. With this maximum, the interval between two
// calls is at least 1 µs even in the shortest window, one second.
const maxCalls = 1_000_000

// NoRate is no limit, for a source whose zero Rate is the default rate (see [Credential.Limit]).
var NoRate = Rate{Window: -1}

// The default rate of a source with named vehicles, and its text.
const (
	defaultBurst  = 36_000
	defaultEach   = 100 * time.Millisecond // between two samples of one vehicle
	defaultInText = "10/s a vehicle, 36000 at once"
)

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour}

// ParseRate parses N/s, N/min or N/h, where N is a whole number from 1 to maxCalls, and "none", which is
// [NoRate]. The empty string and the text of the default rate are the zero Rate. Any other text is an
// error.
func ParseRate(s string) (Rate, error) {
	switch s {
	case "", defaultInText:
		return Rate{}, nil
	case "none":
		return NoRate, nil
	}
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	window, known := rateUnits[unit]
	if err != nil || n < 1 || n > maxCalls || !known {
		return Rate{}, fmt.Errorf("a rate is a whole number from 1 to %d and /s, /min or /h, such as 10/s", maxCalls)
	}
	return Rate{n, window}, nil
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r.Calls > 0 }

// String returns the rate in the format of [ParseRate], such as 10/s, or "" for the zero Rate. If the
// rate is not valid, String returns a text that ParseRate rejects.
func (r Rate) String() string {
	switch r {
	case Rate{}:
		return ""
	case NoRate:
		return "none"
	}
	for unit, window := range rateUnits {
		if r.Window == window {
			return fmt.Sprintf("%d/%s", r.Calls, unit)
		}
	}
	return fmt.Sprintf("%d/%s", r.Calls, r.Window)
}

// Budget is the state of one rate limit: the number of calls that a [Rate] still allows. It is safe
// for concurrent use and takes no lock. The zero Budget allows a whole burst: all Calls of the rate
// at once.
//
// A Budget stores one number, the time at which a whole burst is allowed again (the generic cell
// rate algorithm, ITU-T I.371).
type Budget struct {
	fullAt atomic.Int64 // Unix nanoseconds
}

// Take uses one call of the budget at the time now. r must have a limit. remaining is the number of
// calls left; if it is 0, next is the time until another is available. If the clock was set back,
// Take refuses calls for at most one window.
func (b *Budget) Take(r Rate, now time.Time) (remaining int64, next time.Duration, ok bool) {
	return b.take(r, 1, 1, now)
}

// MaxBatch is the maximum number of calls that one [Budget.TakeBatch] uses.
const MaxBatch = 10_000

// TakeBatch is like Take, but uses n calls at once, or [MaxBatch] calls if n is larger. It succeeds
// if at least one call is left. If fewer than n are left, the budget goes below zero: no call is
// available until it has refilled. With n = 0, TakeBatch uses nothing and only returns how many
// calls are left. If the clock was set back, TakeBatch refuses calls for at most one window plus
// the time in which MaxBatch calls are refilled.
func (b *Budget) TakeBatch(r Rate, n int, now time.Time) (remaining int64, next time.Duration, ok bool) {
	return b.take(r, min(int64(n), MaxBatch), MaxBatch, now)
}

// take implements Take, TakeBatch and Peek: it uses n calls of the budget. Its results are those of
// Take. most is the largest n that Take, TakeBatch or Peek passes for this budget. If the budget is
// overdrawn by more than a batch of most calls can cause, the clock was set back.
func (b *Budget) take(r Rate, n, most int64, now time.Time) (remaining int64, next time.Duration, ok bool) {
	t := now.UnixNano()
	each := int64(r.Window) / r.Calls
	depth := each * r.Calls
	for {
		stored := b.fullAt.Load()
		full := max(stored, t)
		// While the clock runs forward, full is later than the present time t by at most one window
		// (depth) plus the time for the calls taken in advance. If full is later by almost one
		// window more, the clock was set back. In that case, the budget is set to empty. Otherwise
		// no call would be allowed until the clock has reached its earlier time again.
		if full-t > 2*depth-each+(most-1)*each {
			full = t + depth
			b.fullAt.CompareAndSwap(stored, full)
		}
		used := full - t
		if used+each > depth {
			return 0, time.Duration(used + each - depth), false
		}
		used += n * each
		if n == 0 || b.fullAt.CompareAndSwap(stored, t+used) {
			if remaining = max(0, depth-used) / each; remaining == 0 {
				next = time.Duration(used + each - depth)
			}
			return remaining, next, true
		}
	}
}

// Peek returns what [Budget.Take] would return, without using a call.
func (b *Budget) Peek(r Rate, now time.Time) (remaining int64, next time.Duration) {
	remaining, next, _ = b.take(r, 0, 1, now)
	return remaining, next
}

// WaitSeconds returns next in whole seconds, rounded up, but at least 1, for Retry-After. next is
// the time until another call is available.
func WaitSeconds(next time.Duration) int64 {
	return max(1, int64((next+time.Second-1)/time.Second))
}
