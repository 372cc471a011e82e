package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"carstate/internal/seldom"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
	"carstate/internal/ticks"
)

// writeHealth notes whether a stream takes what is written to it. After a write
// error the server stores nothing more in the stream until it starts again, and
// does not even answer.
type writeHealth struct {
	mu     sync.Mutex // guards what follows
	failed int        // tries that failed since the last one that was stored
	looks  int        // looks of the watcher that saw nothing but failures
}

func (h *writeHealth) noteStored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.looks = 0, 0
}

func (h *writeHealth) noteFailed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed++
}

func (h *writeHealth) failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed > 0
}

// look is the watcher's, once every Patience.Beat. It reports whether so many
// tries failed, over so many looks, that no slow disk explains it.
//
// Looks are counted, not time: a process that was frozen, or a machine that was
// paused, wakes up with a write that expired long ago and nothing wrong.
func (h *writeHealth) look() (hopeless bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == 0 {
		return false
	}
	h.looks++
	return h.failed >= hopelessTries && h.looks >= hopelessLooks
}

// With the default patience these cover twelve seconds.
const (
	hopelessTries = 3
	hopelessLooks = 8
)

// warned is what lasts as long as an outage does, for all partitions together.
type warned struct{ fold, commit, backlog, limits seldom.Warning }

// watchedStreams are those that are written to all the time.
var watchedStreams = append([]string{codec.Telemetry}, fedStreams...)

// Alive says why only a restart helps, nil while there is hope.
func (e *Engine) Alive() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Writable says why nothing can be stored at present, nil if it can. It finds
// out by itself when that changes; nobody has to try.
func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	if e.storing.Err() != nil {
		return errJammed
	}
	for _, name := range watchedStreams {
		if e.writes[name].failing() {
			return fmt.Errorf("the engine stores nothing in %s", name)
		}
	}
	return nil
}

// errJammed means that the embedded engine has met a write error.
var errJammed = errors.New("the engine met a write error and stores nothing until it starts again")

// try bounds one try of a write. It ends at once when the engine meets a write
// error: nothing will be answered then.
func (e *Engine) try(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
	stop := context.AfterFunc(e.storing, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// whyNot is why a try failed.
func (e *Engine) whyNot(err error) error {
	if e.storing.Err() != nil {
		return fmt.Errorf("%w (%v)", errJammed, err) // not a time-out, which one tries again
	}
	return err
}

// tryTelemetry finds out when TELEMETRY takes writes again after a commit was
// given up. Nobody else would: while it is said to take none, nobody is let
// through who could store something. What it stores is a commit without samples, the
// only proof that there is, and folded like others. The other streams have their
// heartbeats.
func (e *Engine) tryTelemetry(ctx context.Context) {
	h, subject := e.writes[codec.Telemetry], codec.TelemetrySubject(0)
	id := "" // the same for all tries, so that one of them is stored
	for range ticks.Every(ctx, e.config.Timeouts.Beat) {
		if !h.failing() || e.committing.Load() > 0 || e.storing.Err() != nil { // a commit is tried until it finds out itself
			id = ""
			continue
		}
		if id == "" {
			id = nuid.Next()
		}
		try, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
		_, err := e.js.Publish(try, subject, codec.Seal(subject, []byte{0}), jetstream.WithMsgID(id), jetstream.WithExpectStream(codec.Telemetry))
		cancel()
		switch {
		case err == nil, full(err): // a full stream says so itself to whoever appends
			h.noteStored()
		case ctx.Err() == nil:
			h.noteFailed()
		}
	}
}

// watchWrites ends the process's hope for an embedded engine that stores
// nothing although the disk takes writes: after a write error only a new start
// helps. While the disk itself refuses, the process stays, because queries can
// still be answered. Where the engine does not tell of an error, tries that fail
// do.
func (e *Engine) watchWrites(ctx context.Context) {
	if !e.config.embedded() {
		return
	}
	for range ticks.Every(ctx, e.config.Timeouts.Beat) {
		if e.storing.Err() != nil {
			if embedded.ProbeDisk(e.config.DataDir) == nil {
				e.fail(fmt.Errorf("the engine stores nothing more after a write error, and the disk takes writes again: restart carstate (%w)", context.Cause(e.storing)))
				return
			}
			continue
		}
		for _, name := range watchedStreams {
			if e.writes[name].look() && embedded.ProbeDisk(e.config.DataDir) == nil {
				e.fail(fmt.Errorf("the engine stores nothing more in %s after a write error, and the disk takes writes again: restart carstate", name))
				return
			}
		}
	}
}
