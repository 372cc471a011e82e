package node

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/store"
)

// health reports whether a node can answer queries and accept telemetry at present. Its methods may
// be called concurrently.
type health struct {
	fed        func() (records, answers time.Time, ok bool) // as [store.Engine.Fed]
	writable   func() error                                 // as [store.Engine.Writable]
	newer      *store.Newer                                 // records of a newer version that this node has met
	progress   func() (states int64, folded, groups uint64) // of the start; nil on a cluster
	maxFeedAge time.Duration                                // how long queries are answered while the engine cannot be reached
	ingests    bool                                         // whether the node has the ingest role
	feeds      atomic.Int32                                 // how many feeds have not caught up yet
	records    atomic.Int32                                 // how many of them are the feeds of tokens and sources
	started    chan struct{}                                // closed once records is 0
	draining   atomic.Bool                                  // the probes fail, so that load balancers send no more requests
	ending     atomic.Bool                                  // telemetry is refused
	readOnly   atomic.Bool                                  // set by an operator
}

var (
	errStarting = errors.New("starting: the tables are not loaded yet")
	errTooOld   = errors.New("out of touch with the engine for too long")
	errDraining = errors.New("the node is ending")
	errReadOnly = errors.New("read-only for maintenance: an operator has switched telemetry off (carstate read-only off)")
)

const (
	feedCount   = 3 // tokens, sources, states
	recordFeeds = 2
	healthEvery = 100 * time.Millisecond // how often a change of health is looked for
)

func newHealth(
	fed func() (records, answers time.Time, ok bool), writable func() error, newer *store.Newer, maxFeedAge time.Duration, ingests bool,
) *health {
	h := &health{
		fed: fed, writable: writable, newer: newer, maxFeedAge: maxFeedAge, ingests: ingests, started: make(chan struct{}),
	}
	h.feeds.Store(feedCount)
	h.records.Store(recordFeeds)
	return h
}

func (h *health) caughtUp() { h.feeds.Add(-1) }

// drain makes the probes fail, so that load balancers send no more requests to this node. The node
// continues to answer queries and to accept telemetry.
func (h *health) drain() { h.draining.Store(true) }

// end makes the probes fail, as drain does, and refuses telemetry.
func (h *health) end() {
	h.drain()
	h.ending.Store(true)
}

// recordsCaughtUp is called by the feed of tokens and by that of sources when all stored records
// are delivered. After the second call, callers can be authenticated.
func (h *health) recordsCaughtUp() {
	if h.records.Add(-1) == 0 {
		close(h.started)
	}
	h.caughtUp()
}

// canAnswer returns nil, or the reason why a query that arrived at the time now cannot be answered.
func (h *health) canAnswer(now time.Time) error {
	if err := h.inTouch(now); err != nil {
		return err
	}
	return h.newer.Answers()
}

// inTouch returns nil, or the reason why this node's tables are too old for a query at the time
// now: maxFeedAge has passed since they were last known to be complete.
func (h *health) inTouch(now time.Time) error {
	_, answers, ok := h.fed()
	return h.within(now, answers, ok && h.feeds.Load() == 0)
}

// within returns nil, or the reason why tables that were complete at a time are too old.
func (h *health) within(now, complete time.Time, loaded bool) error {
	switch {
	case !loaded:
		return errStarting
	case now.Sub(complete) > h.maxFeedAge:
		return errTooOld
	}
	return nil
}

// answersNow returns nil, or the reason why queries cannot be answered now.
func (h *health) answersNow() error {
	if err := h.inTouchNow(); err != nil {
		return err
	}
	return h.newer.Answers()
}

// inTouchNow is inTouch at the present time. If the tables are too old, its error has their age. If
// the node is starting, it has the progress.
func (h *health) inTouchNow() error {
	err := h.inTouch(time.Now())
	if errors.Is(err, errStarting) && h.progress != nil {
		states, folded, groups := h.progress()
		return fmt.Errorf("starting: %d states are read, %d %% of the telemetry since the last checkpoint is folded",
			states, 100*folded/max(groups, 1))
	}
	if age, ok := h.feedAge(); ok && errors.Is(err, errTooOld) {
		err = fmt.Errorf("out of touch with the engine for %s", age.Round(time.Second))
	}
	return err
}

// feedAge returns how old the tables are from which queries are answered: the time since they were
// last known to be complete. Before the tables are loaded, ok is false and age has no meaning.
func (h *health) feedAge() (age time.Duration, ok bool) {
	_, answers, ok := h.fed()
	return time.Since(answers), ok
}

// answers returns nil, or the reason why load balancers should send no query to this node. Unlike
// answersNow, it also fails while the node drains.
func (h *health) answers() error {
	if h.draining.Load() {
		return errDraining
	}
	return h.answersNow()
}

// canStore returns nil, or the reason why the node cannot accept telemetry. On a cluster, that needs no
// answers, because there may be no node at present that folds.
func (h *health) canStore() error {
	switch {
	case h.ending.Load():
		return errDraining
	case h.readOnly.Load():
		return errReadOnly
	}
	err := h.inTouchNow()
	if h.progress == nil {
		records, _, ok := h.fed()
		err = h.within(time.Now(), records, ok && h.records.Load() == 0)
	}
	if err != nil {
		return err
	}
	if err := h.newer.Telemetry(); err != nil {
		return err
	}
	return h.writable()
}

// takes returns nil, or the reason why load balancers should send no telemetry to this node. Unlike
// canStore, it also fails while the node drains.
func (h *health) takes() error {
	if h.draining.Load() {
		return errDraining
	}
	return h.canStore()
}

// ready returns nil, or why the node does not do all of its work. While the engine elects a leader,
// no node can store; a node without the ingest role stays ready, so that load balancers find nodes
// for queries.
func (h *health) ready() error {
	if h.ingests {
		if err := h.takes(); err != nil {
			return err
		}
	}
	return h.answers()
}
