package node

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/testkit"
)

// TestCanAnswer checks that canAnswer refuses a query if this node's copies of the stored records
// were too old when the query arrived. A query that arrived in time, but is answered late, must not
// be refused.
func TestCanAnswer(t *testing.T) {
	const maxFeedAge = 5 * time.Second
	start := time.Now()
	var fed time.Time // zero: no heartbeat yet
	h := newHealth(func() (time.Time, bool) { return fed, !fed.IsZero() }, func() error { return nil },
		store.NewNewer(slog.New(slog.DiscardHandler)), maxFeedAge, true)
	want := func(after time.Duration, want error) {
		t.Helper()
		if err := h.canAnswer(start.Add(after)); !errors.Is(err, want) {
			t.Errorf("asked after %s: %v; want %v", after, err, want)
		}
	}
	want(0, errStarting)
	h.recordsCaughtUp()
	h.recordsCaughtUp()
	h.caughtUp()
	want(time.Second, errStarting) // no heartbeat has arrived
	fed = start.Add(time.Second)
	want(2*time.Second, nil)
	want(6*time.Second, nil)
	want(6*time.Second+1, errTooOld)
	want(time.Hour, errTooOld)
	want(3*time.Second, nil) // this query arrived before those, and is answered late
	fed = start.Add(time.Hour)
	want(time.Hour+maxFeedAge, nil)
	want(time.Hour+maxFeedAge+1, errTooOld)
	if n := testing.AllocsPerRun(100, func() { _ = h.canAnswer(start.Add(2 * time.Hour)) }); n != 0 {
		t.Errorf("%g allocations a question", n)
	}
}

// TestReady_WithoutALeader checks nodes of a cluster that can store nothing. A node that ingests
// must report that it is not ready for telemetry. All nodes must stay ready for their other work.
func TestReady_WithoutALeader(t *testing.T) {
	t.Parallel()
	servers := clustertest.StartServer(t)
	node := func(roles ...string) (n *Node, page string) {
		c := configOf(t, roles...)
		c.MaxFeedAge = time.Hour
		c.Cluster.URLs, c.Store.Partitions = servers.URL(), 2
		c.Store.Patience.Store = 2 * time.Second
		c.Cluster.Timeouts = cluster.Timeouts{Try: time.Second, Stall: 2 * time.Second, Beat: 200 * time.Millisecond}
		n = startNode(t, c)
		return n, n.URL(AdminAddr)
	}
	both, pageOfBoth := node(Query, Ingest)
	answers, pageOfAnswers := node(Query)
	folds, pageOfFolds := node(Derive)
	expect := func(page string, want int, text string) {
		t.Helper()
		if err := until(time.Minute, testkit.Says(page, want, `^`+text+`; feed age \d+\.\d s$`)); err != nil {
			t.Error(err)
		}
	}
	for _, page := range []string{pageOfBoth + "/readyz", pageOfBoth + "/readyz/query", pageOfBoth + "/readyz/ingest",
		pageOfAnswers + "/readyz", pageOfAnswers + "/readyz/query", pageOfFolds + "/readyz"} {
		expect(page, http.StatusOK, "ready")
	}
	for _, page := range []string{pageOfAnswers + "/readyz/ingest", pageOfFolds + "/readyz/query",
		pageOfBoth + "/readyz/", pageOfBoth + "/readyz/admin"} {
		if err := testkit.Says(page, http.StatusNotFound, "")(); err != nil {
			t.Error(err)
		}
	}
	servers.Stop()
	for _, s := range []*Node{both, answers, folds} {
		if err := until(time.Minute, func() error {
			if s.engine.Writable() == nil {
				return errors.New("it can store")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	expect(pageOfBoth+"/readyz", http.StatusServiceUnavailable, "the engine stores nothing in [A-Z]+")
	expect(pageOfBoth+"/readyz/ingest", http.StatusServiceUnavailable, "the engine stores nothing in [A-Z]+")
	for _, page := range []string{pageOfBoth + "/readyz/query", pageOfAnswers + "/readyz",
		pageOfAnswers + "/readyz/query", pageOfFolds + "/readyz"} {
		expect(page, http.StatusOK, "ready")
	}
	both.health.drain()
	expect(pageOfBoth+"/readyz/query", http.StatusServiceUnavailable, "the node is ending")
}

// BenchmarkCanAnswer measures the cost of canAnswer, which each query calls.
func BenchmarkCanAnswer(b *testing.B) {
	now := time.Now()
	h := newHealth(func() (time.Time, bool) { return now, true }, func() error { return nil },
		store.NewNewer(slog.New(slog.DiscardHandler)), time.Hour, true)
	h.feeds.Store(0)
	b.ReportAllocs()
	for b.Loop() {
		if err := h.canAnswer(now); err != nil {
			b.Fatal(err)
		}
	}
}
