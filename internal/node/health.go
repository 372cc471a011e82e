package node

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"carstate/internal/store"
)

// health says what a node can do at present.
type health struct {
	fed        func() (time.Time, bool) // as [stream.Engine.Fed]
	writable   func() error             // as [stream.Engine.Writable]
	newer      *store.Newer             // what a newer version stored
	maxFeedAge atomic.Int64             // ns
	takesIn    bool                     // the node takes telemetry
	feeds      atomic.Int32             // feeds that have yet to catch up
	records    atomic.Int32             // of them, those of tokens and sources
	started    chan struct{}            // closed once records is 0
	draining   atomic.Bool              // nothing more is to be sent here
	ending     atomic.Bool              // telemetry is refused
	readOnly   atomic.Bool              // by an operator

	origin time.Time    // monotonic origin of until
	until  atomic.Int64 // ns after origin: at least so long the copies are new enough to answer from; looked at for every query
}

var (
	errStarting = errors.New("starting: the tables are not filled yet")
	errTooOld   = errors.New("out of touch with the engine for too long")
	errDraining = errors.New("the node is ending")
	errReadOnly = errors.New("read-only for maintenance: an operator has switched telemetry off (carstate read-only off)")
)

const (
	feedCount   = 3 // tokens, sources, states
	recordFeeds = 2
	healthEvery = 100 * time.Millisecond // for who waits for a change
)

func newHealth(
	fed func() (time.Time, bool), writable func() error, newer *store.Newer, maxFeedAge time.Duration, takesIn bool,
) *health {
	h := &health{
		fed: fed, writable: writable, newer: newer, takesIn: takesIn, started: make(chan struct{}), origin: time.Now(),
	}
	h.bound(maxFeedAge)
	h.feeds.Store(feedCount)
	h.records.Store(recordFeeds)
	return h
}

func (h *health) caughtUp() { h.feeds.Add(-1) }

// drain has the probes fail; queries are still answered and telemetry is still taken.
func (h *health) drain() { h.draining.Store(true) }

// end is drain, and telemetry is refused.
func (h *health) end() {
	h.drain()
	h.ending.Store(true)
}

// bound changes how long queries are answered out of touch with the engine.
func (h *health) bound(maxFeedAge time.Duration) {
	h.maxFeedAge.Store(int64(maxFeedAge))
	h.until.Store(math.MinInt64)
}

// recordsCaughtUp is caughtUp of the feeds of tokens and of sources.
func (h *health) recordsCaughtUp() {
	if h.records.Add(-1) == 0 {
		close(h.started)
	}
	h.caughtUp()
}

// canAnswer says why what is asked at a moment cannot be answered. Nearly always
// it costs two loads.
func (h *health) canAnswer(now time.Time) error {
	if err := h.inTouch(now); err != nil {
		return err
	}
	return h.newer.Answers()
}

// inTouch says why this node's copies are too old at a moment. Nearly always
// it costs one load, because what was fed once is good for maxFeedAge. It goes by
// the time of the question and not by what was last found out: a process that was
// paused wakes up with that.
func (h *health) inTouch(now time.Time) error {
	if now.Sub(h.origin) <= time.Duration(h.until.Load()) {
		return nil
	}
	if h.feeds.Load() > 0 {
		return errStarting
	}
	fed, ok := h.fed()
	if !ok {
		return errStarting
	}
	until := fed.Add(time.Duration(h.maxFeedAge.Load()))
	h.until.Store(int64(until.Sub(h.origin)))
	if now.After(until) {
		return errTooOld
	}
	return nil
}

// answersNow says why queries cannot be answered now.
func (h *health) answersNow() error {
	if err := h.inTouchNow(); err != nil {
		return err
	}
	return h.newer.Answers()
}

// inTouchNow is inTouch, and tells the age of copies that are too old.
func (h *health) inTouchNow() error {
	err := h.inTouch(time.Now())
	if age, ok := h.feedAge(); ok && errors.Is(err, errTooOld) {
		err = fmt.Errorf("out of touch with the engine for %s", age.Round(time.Second))
	}
	return err
}

// feedAge is how old the copies may be that are answered from; ok is false while
// there are none.
func (h *health) feedAge() (age time.Duration, ok bool) {
	fed, ok := h.fed()
	return time.Since(fed), ok
}

// answers says why the node is to be asked nothing: also because it is ending.
func (h *health) answers() error {
	if h.draining.Load() {
		return errDraining
	}
	return h.answersNow()
}

// canStore says why telemetry cannot be taken.
func (h *health) canStore() error {
	switch {
	case h.ending.Load():
		return errDraining
	case h.readOnly.Load():
		return errReadOnly
	}
	if err := h.inTouchNow(); err != nil {
		return err
	}
	if err := h.newer.Telemetry(); err != nil {
		return err
	}
	return h.writable()
}

// takes says why no telemetry is to be sent to the node: also because it is ending.
func (h *health) takes() error {
	if h.draining.Load() {
		return errDraining
	}
	return h.canStore()
}

// ready is for /readyz: why the node does not do all of its work. Only one that takes
// telemetry has to be able to store it. From the others nothing could be sent
// elsewhere while the engine chooses a leader: all nodes store nothing then, and
// queries are answered all the same.
func (h *health) ready() error {
	if h.takesIn {
		if err := h.takes(); err != nil {
			return err
		}
	}
	return h.answers()
}
