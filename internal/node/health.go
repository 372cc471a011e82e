package node

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/store"
)

type health struct {
	fed        func() (records, answers time.Time, ok bool) // as [store.Engine.Fed]
	writable   func() error                                 // as [store.Engine.Writable]
	newer      *store.Newer
	progress   func() (states int64, folded, groups uint64) // of the start; nil on a cluster
	maxFeedAge time.Duration                                // as [Config.MaxFeedAge]
	ingests    bool
	feeds      atomic.Int32  // feeds that have caught up
	records    atomic.Int32  // of feeds, those of tokens and sources
	started    chan struct{} // closed once records is recordFeeds
	draining   atomic.Bool   // the probes fail, so that load balancers send no more requests
	ending     atomic.Bool   // telemetry is refused
	readOnly   atomic.Bool
}

var (
	errStarting = errors.New("starting: the tables are not loaded yet")
	errTooOld   = errors.New("out of touch with the engine for too long")
	errUnowned  = errors.New("starting: the answers of some partitions are awaited: each needs a node with the role derive")
	errDraining = errors.New("the node is ending")
	errReadOnly = errors.New("read-only for maintenance: an operator has switched telemetry off (carstate read-only off)")
)

const (
	feedCount   = 3 // tokens, sources, states
	recordFeeds = 2
	healthEvery = 100 * time.Millisecond // how often a change of health is looked for
)

func (h *health) caughtUp() { h.feeds.Add(1) }

func (h *health) end() {
	h.draining.Store(true)
	h.ending.Store(true)
}

// After the second call of recordsCaughtUp, callers can be authenticated.
func (h *health) recordsCaughtUp() {
	if h.records.Add(1) == recordFeeds {
		close(h.started)
	}
	h.caughtUp()
}

// now is when the query arrived.
func (h *health) canAnswer(now time.Time) error {
	_, answers, ok := h.fed()
	return cmp.Or(h.within(now, answers, ok && h.feeds.Load() == feedCount), h.newer.Answers())
}

func (h *health) within(now, complete time.Time, loaded bool) error {
	switch {
	case !loaded:
		return errStarting
	case now.Sub(complete) > h.maxFeedAge:
		return errTooOld
	}
	return nil
}

func (h *health) answersNow() error {
	return cmp.Or(h.inTouchNow(false), h.newer.Answers())
}

// The error of inTouchNow has the age of the tables, or the progress of a start.
func (h *health) inTouchNow(recordsOnly bool) error {
	complete, answers, ok := h.fed()
	started := h.records.Load() == recordFeeds
	loaded := started
	if !recordsOnly {
		complete, loaded = answers, h.feeds.Load() == feedCount
	}
	err := h.within(time.Now(), complete, ok && loaded)
	switch {
	case errors.Is(err, errStarting) && h.progress != nil:
		states, folded, groups := h.progress()
		return fmt.Errorf("starting: %d states are read, %d %% of the telemetry since the last checkpoint is folded",
			states, 100*folded/max(groups, 1))
	case errors.Is(err, errStarting) && !recordsOnly && started:
		return errUnowned
	case errors.Is(err, errTooOld):
		return fmt.Errorf("out of touch with the engine for %s", time.Since(complete).Round(time.Second))
	}
	return err
}

// ok is false before the tables are loaded.
func (h *health) feedAge() (age time.Duration, ok bool) {
	_, answers, ok := h.fed()
	return time.Since(answers), ok
}

func (h *health) answers() error {
	if h.draining.Load() {
		return errDraining
	}
	return h.answersNow()
}

// On a cluster, storing needs no answers, because there may be no node at present that folds.
func (h *health) canStore() error {
	switch {
	case h.ending.Load():
		return errDraining
	case h.readOnly.Load():
		return errReadOnly
	}
	return cmp.Or(h.inTouchNow(h.progress == nil), h.newer.Telemetry(), h.writable())
}

func (h *health) takes() error {
	if h.draining.Load() {
		return errDraining
	}
	return h.canStore()
}

// While the engine elects a leader, no node can store. A node without the ingest role stays ready,
// so that load balancers find nodes for queries.
func (h *health) ready() error {
	if h.ingests {
		if err := h.takes(); err != nil {
			return err
		}
	}
	return h.answers()
}
