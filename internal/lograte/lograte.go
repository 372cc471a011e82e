// Package lograte logs what happens again and again as long as something lasts: at
// once, then once a minute with how often it was. An outage must not fill a disk
// with one line a partition and try.
package lograte

import (
	"log/slog"
	"sync"
	"time"
)

// Every is how often the same warning is logged at most.
const Every = time.Minute

// Warning is one text that is not to be repeated. Its zero value was never logged.
// Safe for concurrent use; whoever shares one shares its minute.
type Warning struct {
	mu     sync.Mutex // guards what follows
	last   time.Time
	silent int // how often it was not logged since
}

// Log logs the warning if it was not logged within [Every], and counts it if it
// was. A line says how many came since the one before without a line of their own.
func (w *Warning) Log(log *slog.Logger, text string, args ...any) {
	w.mu.Lock()
	now := time.Now()
	if !w.last.IsZero() && now.Sub(w.last) < Every {
		w.silent++
		w.mu.Unlock()
		return
	}
	if w.silent > 0 {
		args = append(args, "times_since_last_line", w.silent)
	}
	w.last, w.silent = now, 0
	w.mu.Unlock()
	log.Warn(text, args...)
}
