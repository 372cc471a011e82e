package stream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// writeHealth notes whether a stream takes what is written to it. After a write
// error the server stores nothing more in the stream until it starts again, and
// does not even answer.
type writeHealth struct {
	failing atomic.Int64 // Unix ns: when the first of the writes began that all failed since; 0: the last one did not
}

func (h *writeHealth) noteStored() { h.failing.Store(0) }

// noteFailed takes the time at which the write began.
func (h *writeHealth) noteFailed(began time.Time) { h.failing.CompareAndSwap(0, began.UnixNano()) }

// since is how long writes have failed, 0 if they do not.
func (h *writeHealth) since() time.Duration {
	if f := h.failing.Load(); f != 0 {
		return time.Since(time.Unix(0, f))
	}
	return 0
}

// watchedStreams are those that are written to all the time.
var watchedStreams = append([]string{Telemetry}, fedStreams...)

// Writable says why nothing can be stored at present, nil if it can.
func (e *Engine) Writable() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	for _, name := range watchedStreams {
		if e.writes[name].since() > 0 {
			return fmt.Errorf("the engine stores nothing in %s", name)
		}
	}
	return nil
}

// writeGrace is how long the embedded engine may fail to store until we look for
// the cause. It covers several writes that nobody answered: one alone may have
// met a slow disk.
const writeGrace = 12 * time.Second

// watchWrites ends the process's hope for an embedded engine that stores
// nothing although the disk takes writes: after a write error only a new start
// helps. While the disk itself refuses, the process stays, because queries can
// still be answered.
func (e *Engine) watchWrites(ctx context.Context) {
	if !e.config.embedded() {
		return
	}
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, name := range watchedStreams {
			if e.writes[name].since() < writeGrace {
				continue
			}
			if probeDisk(e.config.DataDir) == nil {
				e.fail(fmt.Errorf("the engine stores nothing more in %s after a write error, and the disk takes writes again: restart carstate", name))
				return
			}
		}
	}
}

// probeBytes is more than the server needs for a few records.
const probeBytes = 1 << 20

// probeDisk tries to write and sync a file in the directory.
func probeDisk(dir string) error {
	name := filepath.Join(dir, "probe")
	defer os.Remove(name)
	return writeFileSynced(name, make([]byte, probeBytes))
}
