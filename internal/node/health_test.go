package node

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

// A query that arrived in time is not refused because it is answered late.
func TestCanAnswer(t *testing.T) {
	const maxFeedAge = 5 * time.Second
	start := time.Now()
	var fed time.Time
	h := newHealth(func() (records, answers time.Time, ok bool) { return fed, fed, !fed.IsZero() }, func() error { return nil },
		store.NewNewer(slog.New(slog.DiscardHandler)), maxFeedAge, true)
	want := func(after time.Duration, want error) {
		t.Helper()
		if err := h.canAnswer(start.Add(after)); !errors.Is(err, want) {
			t.Errorf("asked after %s: %v; want %v", after, err, want)
		}
	}
	want(0, errStarting)
	h.progress = func() (states int64, folded, groups uint64) { return 7, 1, 4 }
	if err := h.ready(); err == nil || !strings.Contains(err.Error(), "7 states are read, 25 % ") {
		t.Errorf("while starting: not ready because of %v, want the progress", err)
	}
	h.recordsCaughtUp()
	h.recordsCaughtUp()
	h.caughtUp()
	want(time.Second, errStarting)
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

// While nothing can be stored, only telemetry is not ready. The recovery needs no request, because
// load balancers send none in the meantime.
func TestReady_WithoutALeader(t *testing.T) {
	t.Parallel()
	servers := clustertest.StartServer(t)
	node := func(roles ...string) (*Node, *testkit.Buffer) {
		c := configOf(t, roles...)
		c.MaxFeedAge = time.Hour
		c.Cluster.URLs, c.Store.Partitions = servers.URL(), 2
		c.Store.Patience.Store = 2 * time.Second
		c.Cluster.Timeouts = cluster.Timeouts{Try: time.Second, Stall: 2 * time.Second, Beat: 200 * time.Millisecond}
		return startLogged(t, c)
	}
	all, log := node(Query, Ingest, Admin)
	answers, _ := node(Query)
	expect := func(n *Node, path string, want int, text string) {
		t.Helper()
		if err := until(time.Minute, testkit.Says(n.URL(AdminAddr)+path, want, text)); err != nil {
			t.Error(err)
		}
	}
	const ready, stuck = `^ready; feed age \d+\.\d s$`, `^the engine stores nothing in [A-Z]+; feed age \d+\.\d s$`
	expect(all, "/readyz/ingest", http.StatusOK, ready) // although no node folds yet
	expect(all, "/readyz/query", http.StatusServiceUnavailable, "needs a node with the role derive")
	folds, _ := node(Derive)
	stillReady := func() {
		t.Helper()
		expect(all, "/readyz/query", http.StatusOK, ready)
		expect(answers, "/readyz", http.StatusOK, ready)
		expect(answers, "/readyz/query", http.StatusOK, ready)
		expect(folds, "/readyz", http.StatusOK, ready)
	}
	stillReady()
	expect(answers, "/readyz/ingest", http.StatusNotFound, "")
	expect(folds, "/readyz/query", http.StatusNotFound, "")
	expect(all, "/readyz/", http.StatusNotFound, "")
	expect(all, "/readyz/admin", http.StatusNotFound, "")
	operator := operatorOf(t, all)
	key := gateway(t, operator)
	post := func() (int, error) { return testkit.Post(all.URL(IngestAddr), key, []string{"a", "b", "c"}) }
	taken := func() {
		t.Helper()
		expect(all, "/readyz", http.StatusOK, ready)
		expect(all, "/readyz/ingest", http.StatusOK, ready)
		if err := until(time.Minute, func() error {
			n, err := post()
			if err == nil && n != 3 {
				t.Fatalf("%d samples are accepted, want 3", n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		taken()
		servers.Stop()
		if _, err := post(); err == nil || !strings.Contains(err.Error(), "HTTP 503") {
			t.Fatalf("without a cluster: %v", err)
		}
		for _, n := range []*Node{all, answers, folds} {
			testkit.Await(t, "it can store nothing", func() bool { return n.engine.Writable() != nil })
			expect(n, "/healthz", http.StatusOK, "")
		}
		expect(all, "/readyz", http.StatusServiceUnavailable, stuck)
		expect(all, "/readyz/ingest", http.StatusServiceUnavailable, stuck)
		stillReady()
		servers.Start()
	}
	taken()
	all.health.drain()
	expect(all, "/readyz/query", http.StatusServiceUnavailable, "^the node is ending;")
	if log.Count(operator.Key) > 0 {
		t.Error("the admin key is in the log")
	}
}
