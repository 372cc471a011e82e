package access

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Rate is how many calls a token may make in a window, or how many samples a source may
// send: Calls at once, refilled evenly over Window. The zero Rate is no limit.
type Rate struct {
	Calls  int64
	Window time.Duration
}

// maxCalls keeps an interval of at least a microsecond in every window.
const maxCalls = 1_000_000

var rateUnits = []struct {
	name   string
	window time.Duration
}{
	{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour},
}

// ParseRate reads N/s, N/min or N/h; "" is no limit.
func ParseRate(s string) (Rate, error) {
	if s == "" {
		return Rate{}, nil
	}
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	for _, u := range rateUnits {
		if u.name == unit && err == nil && n > 0 && n <= maxCalls {
			return Rate{n, u.window}, nil
		}
	}
	return Rate{}, fmt.Errorf("a rate is a whole number from 1 to %d and /s, /min or /h, such as 10/s", maxCalls)
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r.Calls > 0 }

// String writes the rate as [ParseRate] reads it, and a rate that ParseRate could not
// have read as a text that it refuses.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	window := r.Window.String()
	for _, u := range rateUnits {
		if r.Window == u.window {
			window = u.name
		}
	}
	return fmt.Sprintf("%d/%s", r.Calls, window)
}

// Budget counts the calls made under a [Rate]. It is safe for concurrent use
// and holds no lock. The zero Budget is full.
//
// It keeps one number, the time at which the budget would be full again (the
// generic cell rate algorithm, ITU-T I.371).
type Budget struct {
	fullAt atomic.Int64 // Unix nanoseconds
}

// Take uses up one call at now; r must have a limit. If there was none left, ok
// is false and nothing is used up. remaining is what is left after the call;
// next is the time until one more call is there, zero if remaining is not zero.
// A clock that jumps back locks a token out for one window at most.
func (b *Budget) Take(r Rate, now time.Time) (remaining int64, next time.Duration, ok bool) {
	return b.take(r, 1, 1, now)
}

// MaxBatch is how many calls [Budget.TakeBatch] uses up at most.
const MaxBatch = 10_000

// TakeBatch is Take for n calls at once, up to [MaxBatch]. One has to be there; what is
// missing of the others is owed, and nothing is there until the budget has refilled that.
// With n = 0 it only looks.
// A clock that jumps back locks a source out for as long as MaxBatch calls and a window
// take, at most.
func (b *Budget) TakeBatch(r Rate, n int, now time.Time) (remaining int64, next time.Duration, ok bool) {
	return b.take(r, min(int64(n), MaxBatch), MaxBatch, now)
}

// take is TakeBatch where no batch has more than most calls.
func (b *Budget) take(r Rate, n, most int64, now time.Time) (remaining int64, next time.Duration, ok bool) {
	t := now.UnixNano()
	each := int64(r.Window) / r.Calls
	depth := each * r.Calls
	for {
		stored := b.fullAt.Load()
		full := max(stored, t)
		// While the clock runs forward, full is at most depth ahead, and what is owed. This
		// far ahead, the clock jumped back by a window or more: settle for
		// an empty budget, or the jump would be the length of a lock-out.
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

// Peek tells what [Budget.Take] would leave if it took nothing.
func (b *Budget) Peek(r Rate, now time.Time) (remaining int64, next time.Duration) {
	remaining, next, _ = b.take(r, 0, 1, now)
	return remaining, next
}
