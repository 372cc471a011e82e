package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/store/cluster"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// following reads every state when it is stored. It reports a finding if a vehicle's state is older
// than the one that was stored before it.
type following struct {
	a *row.Attempt

	mu     sync.Mutex // guards the fields below
	at     map[vehicle.ID]vehicle.UnixMilli
	states int
	came   map[vehicle.ID][]arrival // recorded from the call of begin to that of renewed; else nil
}

// arrival records when a state was received, and the state's time.
type arrival struct {
	at time.Time
	of vehicle.UnixMilli
}

func newFollowing(a *row.Attempt) *following {
	return &following{a: a, at: make(map[vehicle.ID]vehicle.UnixMilli)}
}

// run follows the feed of states until ctx ends.
func (f *following) run(ctx context.Context, e *cluster.Engine) {
	if err := e.FollowStates(ctx, f.put, func() {}); err != nil && ctx.Err() == nil {
		f.a.Wrong("the states cannot be followed: %v", err)
	}
}

func (f *following) put(id vehicle.ID, s *vehicle.State) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states++
	if was := f.at[id]; s.Time < was {
		f.a.Wrong("the state of %s goes back by %s, to %s", id, was.Sub(s.Time), s.Time.Time().Format("15:04:05.000"))
	}
	if f.came != nil && s.Time > f.at[id] {
		f.came[id] = append(f.came[id], arrival{now, s.Time})
	}
	f.at[id] = s.Time
}

// begin starts to record when states arrive, for a later call of renewed.
func (f *following) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = make(map[vehicle.ID][]arrival)
}

// renewed returns the time by which every car had a state newer than the parameter when. It
// considers only states that arrived since the call of begin. If a car has no such state, renewed
// returns the zero time. It also ends the recording that begin started.
func (f *following) renewed(when vehicle.UnixMilli) (last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.came = nil }()
	for _, id := range layout.All() {
		i := slices.IndexFunc(f.came[id], func(a arrival) bool { return a.of > when })
		if i < 0 {
			return time.Time{}
		}
		if at := f.came[id][i].at; at.After(last) {
			last = at
		}
	}
	return last
}

// newerThan returns an error until the state of every car is newer than the parameter when.
func (f *following) newerThan(when vehicle.UnixMilli) error {
	wanted := make(map[vehicle.ID]vehicle.UnixMilli)
	for _, id := range layout.All() {
		wanted[id] = when + 1
	}
	return f.reached(wanted)
}

// someNewerThan returns an error until the state of at least one car is newer than the parameter
// when.
func (f *following) someNewerThan(when vehicle.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.at {
		if at > when {
			return nil
		}
	}
	return fmt.Errorf("no state is of after %s", when.Time().Format("15:04:05.000"))
}

// reached returns an error until the state of every car in wanted is of the time given there, or
// newer.
func (f *following) reached(wanted map[vehicle.ID]vehicle.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, at := range wanted {
		if f.at[id] < at {
			return fmt.Errorf("the state of %s is not of after %s, but %s older", id, at.Time().Format("15:04:05.000"),
				at.Sub(f.at[id]))
		}
	}
	return nil
}

// current is the maximum age at which a node's copy of the states is considered up to
// date. It is more than two seconds, because the age falls only when a heartbeat arrives
// on the feed, which happens once a second.
const current = 2500 * time.Millisecond

// watching observes the nodes' readiness and metrics.
type watching struct {
	nodes  []*nodeprocess.Node
	frozen [carstates]atomic.Bool // frozen nodes are not asked

	mu     sync.Mutex // guards the fields below
	oldest time.Duration
	seen   [carstates]look
}

// look holds the observations of one node since the last call of [watching.begin].
type look struct {
	at      time.Time // zero: nothing yet
	age     time.Duration
	refused time.Time // the last time at which the node was not ready to store
	old     time.Time // the last time at which its copy was not current
}

func newWatching(nodes []*nodeprocess.Node) *watching { return &watching{nodes: nodes} }

// begin discards all observations.
func (w *watching) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.oldest, w.seen = 0, [carstates]look{}
}

func (w *watching) run(ctx context.Context, i int, n *nodeprocess.Node) {
	for ; ctx.Err() == nil; row.Pause(ctx, 250*time.Millisecond) {
		if !w.frozen[i].Load() {
			w.ask(ctx, i, n)
		}
	}
}

func (w *watching) ask(ctx context.Context, i int, n *nodeprocess.Node) {
	notReady := n.Ready(ctx)
	m, err := n.Metrics(ctx)
	if err != nil || w.frozen[i].Load() {
		return // errors are reported by asking, which queries the same nodes
	}
	var age time.Duration
	for name, v := range m {
		if strings.HasPrefix(name, "carstate_feed_age_seconds{") {
			age = max(age, time.Duration(v*float64(time.Second)))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.oldest = max(w.oldest, age)
	l := &w.seen[i]
	l.at, l.age = now, age
	if notReady != nil {
		l.refused = now
	}
	if age > current {
		l.old = now
	}
}

// healthy returns an error unless the latest observation of every node, made since begin, found the
// node ready and its copy current.
func (w *watching) healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, l := range w.seen {
		if l.at.IsZero() || l.at.Equal(l.refused) || l.at.Equal(l.old) {
			return fmt.Errorf("node %d is not ready, or its copy is %s old", i, l.age.Round(100*time.Millisecond))
		}
	}
	return nil
}

// greatestAge returns the greatest age that the copy of the states of any node has had since begin.
func (w *watching) greatestAge() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.oldest
}

// feedsBehind returns for how long a node's copy of the states remained too old after the node had
// become able to store again. The result is the longest such time of all nodes since begin. ok is
// false if every node was always able to store.
func (w *watching) feedsBehind() (longest time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.seen {
		if !l.refused.IsZero() {
			longest, ok = max(longest, l.old.Sub(l.refused)), true
		}
	}
	return max(longest, 0), ok
}
