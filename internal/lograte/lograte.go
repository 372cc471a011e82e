// Package lograte limits repeated warnings to a few a minute with the number of those left out.
// Otherwise an outage, or callers without a key, could fill a disk.
package lograte

import (
	"log/slog"
	"sync"
	"time"
)

const Every = time.Minute

// Warning is one warning, whose callers share its limit. It is safe for concurrent use.
type Warning struct {
	Limit int              // lines within [Every]; if 0, one
	Now   func() time.Time // if nil, time.Now

	mu         sync.Mutex // guards the fields below
	first      time.Time
	logged     int // since first
	suppressed int // since the last line
}

// Log logs the warning, or only counts it (times_since_last_line).
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
