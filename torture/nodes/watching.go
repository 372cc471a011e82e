package nodes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/nodeprocess"
)

// current is how old a copy may be that is up to date: heartbeats come once a
// second.
const current = 2500 * time.Millisecond

// watching looks at what the nodes say of themselves.
type watching struct {
	nodes  []*nodeprocess.Node
	frozen [carstates]atomic.Bool // nobody is asked who cannot answer

	mu     sync.Mutex // guards what follows
	oldest time.Duration
	seen   [carstates]look
}

// look is what is known of a node since the window began.
type look struct {
	at      time.Time // zero: not yet
	age     time.Duration
	refused time.Time // when it last said that it cannot store
	old     time.Time // when its copy was last not current
}

func newWatching(nodes []*nodeprocess.Node) *watching { return &watching{nodes: nodes} }

// begin forgets what was seen.
func (w *watching) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.oldest, w.seen = 0, [carstates]look{}
}

func (w *watching) run(ctx context.Context, i int, n *nodeprocess.Node) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if !w.frozen[i].Load() {
			w.ask(ctx, i, n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *watching) ask(ctx context.Context, i int, n *nodeprocess.Node) {
	notReady := n.Ready(ctx)
	m, err := n.Metrics(ctx)
	if err != nil || w.frozen[i].Load() {
		return // those who ask it questions report it
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

// healthy is an error until every node was seen, since the window began, to be
// ready and current.
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

// greatestAge is that of any node's copy since the window began.
func (w *watching) greatestAge() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.oldest
}

// feedsBehind is how long after a node could store again its copy was not current;
// false if no node ever could not.
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
