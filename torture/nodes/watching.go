package nodes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// current is the maximum age at which a node's copy of the states is considered up to date. It is
// more than two seconds, because a heartbeat on the feed renews the copy only once a second.
const current = 2500 * time.Millisecond

// watching observes the nodes' readiness and metrics.
type watching struct {
	nodes  []*nodeprocess.Node
	frozen [carstates]atomic.Bool // frozen nodes are not asked

	mu     sync.Mutex // guards the fields below
	oldest time.Duration
	seen   [carstates]look
}

// look holds the observations of one node since begin.
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

// greatestAge returns the greatest age that a node's copy has had since begin.
func (w *watching) greatestAge() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.oldest
}

// feedsBehind returns how long a node's copy was still too old after the node could store again:
// the longest such time of all nodes since begin. ok is false if every node could always store.
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
