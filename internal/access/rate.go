package access

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Rate allows a burst of Calls, which become available again evenly, Calls per Window. The zero
// Rate is no limit or, for a source with named vehicles, the default rate (see [Credential.Limit]).
type Rate struct {
	Calls  int64
	Window time.Duration
}

// maxCalls leaves 1 µs or more between two calls.
const maxCalls = 1_000_000

// NoRate is no limit for any source.
var NoRate = Rate{Window: -1}

const (
	defaultBurst  = 36_000
	defaultEach   = 100 * time.Millisecond // between two samples of one vehicle
	defaultInText = "10/s a vehicle, 36000 at once"
)

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour}

// ParseRate parses N/s, N/min, N/h and "none". "" and the default rate's text are the zero Rate.
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

func (r Rate) Limited() bool { return r.Calls > 0 }

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

// Budget is what a [Rate] still allows, on the monotonic clock. It is safe for concurrent use and
// takes no lock. The zero Budget allows a whole burst. It stores when a whole burst is allowed
// again (the generic cell rate algorithm, ITU-T I.371).
type Budget struct {
	fullAt atomic.Int64 // a time of monotonic
}

var began = time.Now()

// monotonic returns nanoseconds that no change of the wall clock moves, if t is from time.Now.
func monotonic(t time.Time) int64 { return began.UnixNano() + int64(t.Sub(began)) }

const MaxBatch = 10_000

// Take uses n calls, at most [MaxBatch], if at least one is available. If n are not, the missing ones
// are taken in advance: no call is available until they have refilled. r must have a limit. next is
// the time until one call is available or, while calls remain, until one more has refilled.
func (b *Budget) Take(r Rate, n int, now time.Time) (remaining int64, next time.Duration, ok bool) {
	t := monotonic(now)
	each := int64(r.Window) / r.Calls
	depth := each * r.Calls
	for {
		full := b.fullAt.Load()
		used := max(0, full-t)
		if used+each > depth {
			return 0, time.Duration(used + each - depth), false
		}
		used += min(int64(n), MaxBatch) * each
		if n == 0 || b.fullAt.CompareAndSwap(full, t+used) {
			if remaining = max(0, depth-used) / each; remaining > 0 {
				return remaining, time.Duration(each), true
			}
			return 0, time.Duration(used + each - depth), true
		}
	}
}

// WaitSeconds is for Retry-After: it rounds up, to at least 1.
func WaitSeconds(next time.Duration) int64 {
	return max(1, int64((next+time.Second-1)/time.Second))
}
