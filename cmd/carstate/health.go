package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"carstate/internal/stream"
	"carstate/internal/ticks"
)

// health says what a node can do at present.
type health struct {
	engine     *stream.Engine
	maxFeedAge time.Duration
	feeds      atomic.Int32  // feeds that have yet to catch up
	records    atomic.Int32  // of them, those of tokens and sources
	started    chan struct{} // closed once records is 0
	draining   atomic.Bool
	answer     atomic.Pointer[error] // why queries cannot be answered; looked at for every query
}

var (
	errStarting = errors.New("starting: the tables are not filled yet")
	errDraining = errors.New("the node is ending")
)

const (
	feedCount   = 3 // tokens, sources, states
	recordFeeds = 2
	healthEvery = 100 * time.Millisecond
)

func newHealth(e *stream.Engine, maxFeedAge time.Duration) *health {
	h := &health{engine: e, maxFeedAge: maxFeedAge, started: make(chan struct{})}
	h.feeds.Store(feedCount)
	h.records.Store(recordFeeds)
	h.answer.Store(&errStarting)
	return h
}

func (h *health) caughtUp() { h.feeds.Add(-1) }
func (h *health) drain()    { h.draining.Store(true) }

// recordsCaughtUp is caughtUp of the feeds of tokens and of sources.
func (h *health) recordsCaughtUp() {
	if h.records.Add(-1) == 0 {
		close(h.started)
	}
	h.caughtUp()
}

// run looks at the feeds until the context ends, so that queries need not.
func (h *health) run(ctx context.Context) {
	for range ticks.NowAndEvery(ctx, healthEvery) {
		if err := h.feedsOK(); err != nil {
			h.answer.Store(&err)
		} else {
			h.answer.Store(nil)
		}
	}
}

func (h *health) feedsOK() error {
	if h.feeds.Load() > 0 {
		return errStarting
	}
	age, err := h.engine.FeedAge()
	if err == nil && age > h.maxFeedAge {
		err = fmt.Errorf("out of touch with the engine for %s", age.Round(time.Second))
	}
	return err
}

// canAnswer says why queries cannot be answered. It costs one load.
func (h *health) canAnswer() error {
	if err := h.answer.Load(); err != nil {
		return *err
	}
	return nil
}

// canStore says why telemetry cannot be taken.
func (h *health) canStore() error {
	if h.draining.Load() {
		return errDraining
	}
	if err := h.canAnswer(); err != nil {
		return err
	}
	return h.engine.Writable()
}

// ready is for /readyz.
func (h *health) ready() error { return h.canStore() }
