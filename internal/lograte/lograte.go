// Package lograte limits the rate of repeated log lines. A warning is logged at once, and then at
// most once a minute, with the number of lines that were left out. Otherwise an outage could fill a
// disk with one line for each attempt on each partition.
package lograte

import (
	"log/slog"
	"sync"
	"time"
)

// Every is the minimum time between two lines of the same warning.
const Every = time.Minute

// Warning is one rate-limited warning. All callers that share a Warning share its limit. The zero
// value is ready to use. It is safe for concurrent use.
type Warning struct {
	mu         sync.Mutex // guards the fields below
	last       time.Time
	suppressed int // lines left out since last
}

// Log logs the warning, unless it was logged less than [Every] ago; then Log only counts it. A
// logged line contains the number of warnings that were left out since the previous line.
func (w *Warning) Log(log *slog.Logger, text string, args ...any) {
	w.mu.Lock()
	now := time.Now()
	if !w.last.IsZero() && now.Sub(w.last) < Every {
		w.suppressed++
		w.mu.Unlock()
		return
	}
	if w.suppressed > 0 {
		args = append(args, "times_since_last_line", w.suppressed)
	}
	w.last, w.suppressed = now, 0
	w.mu.Unlock()
	log.Warn(text, args...)
}
