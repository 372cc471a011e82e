// Package lograte limits the rate of repeated log lines. A warning is logged at once, and then at
// most once a minute, unless its limit is higher. If warnings were left out before a line, the line
// has their number. Without the limit, an outage could fill a disk with one line for each attempt
// on each partition, and callers without a key could fill it in the same way.
package lograte

import (
	"log/slog"
	"sync"
	"time"
)

// Every is the time in which a [Warning] logs at most Warning.Limit lines.
const Every = time.Minute

// Warning is one rate-limited warning. All callers that share a Warning share its limit. The zero
// value is ready to use and logs one line per [Every]. A Warning is safe for concurrent use.
type Warning struct {
	Limit int              // maximum number of lines within [Every]; if 0, one
	Now   func() time.Time // if nil, time.Now is used

	mu         sync.Mutex // guards the fields below
	first      time.Time
	logged     int // lines logged since first
	suppressed int // lines left out since the last line
}

// Log logs the warning at level WARN, or only counts it if the limit is reached. The next line has
// the number of warnings left out (times_since_last_line).
func (w *Warning) Log(log *slog.Logger, text string, args ...any) {
	w.mu.Lock()
	now := time.Now()
	if w.Now != nil {
		now = w.Now()
	}
	if w.first.IsZero() || now.Sub(w.first) >= Every {
		w.first, w.logged = now, 0
	}
	if w.logged >= max(1, w.Limit) {
		w.suppressed++
		w.mu.Unlock()
		return
	}
	if w.suppressed > 0 {
		args = append(args, "times_since_last_line", w.suppressed)
	}
	w.logged++
	w.suppressed = 0
	w.mu.Unlock()
	log.Warn(text, args...)
}
