package node_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/node"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

// While nothing can be stored, only telemetry is not ready. The recovery needs no request, because
// load balancers send none in the meantime.
func TestReady_WithoutALeader(t *testing.T) {
	testkit.Slow(t, "it waits until nodes notice that the servers have stopped")
	t.Parallel()
	servers := clustertest.StartServer(t)
	start := func(roles ...string) (*running, *testkit.Buffer) {
		c := configOf(t, roles...)
		c.MaxFeedAge = time.Hour
		c.Cluster.URLs, c.Store.Partitions = servers.URL(), 2
		c.Store.Patience.Store = 2 * time.Second
		c.Cluster.Timeouts = cluster.Timeouts{Try: time.Second, Beat: 200 * time.Millisecond}
		return startLogged(t, c)
	}
	all, log := start(node.Query, node.Ingest, node.Admin)
	answers, _ := start(node.Query)
	const ready, stuck = `^ready; feed age \d+\.\d s$`, `^the engine stores nothing in [A-Z]+; feed age \d+\.\d s$`
	expect(t, all, "/readyz/ingest", http.StatusOK, ready)
	expect(t, all, "/readyz/query", http.StatusServiceUnavailable, "needs a node with the role derive")
	folds, _ := start(node.Derive)
	stillReady := func() {
		t.Helper()
		expect(t, all, "/readyz/query", http.StatusOK, ready)
		expect(t, answers, "/readyz", http.StatusOK, ready)
		expect(t, answers, "/readyz/query", http.StatusOK, ready)
		expect(t, folds, "/readyz", http.StatusOK, ready)
	}
	stillReady()
	expect(t, answers, "/readyz/ingest", http.StatusNotFound, "")
	expect(t, folds, "/readyz/query", http.StatusNotFound, "")
	expect(t, all, "/readyz/", http.StatusNotFound, "")
	expect(t, all, "/readyz/admin", http.StatusNotFound, "")
	operator := operatorOf(t, all)
	key := gateway(t, operator)
	post := func() (int, error) { return testkit.Post(all.URL(node.IngestAddr), key, []string{"a", "b", "c"}) }
	taken := func() {
		t.Helper()
		expect(t, all, "/readyz", http.StatusOK, ready)
		expect(t, all, "/readyz/ingest", http.StatusOK, ready)
		if err := until(time.Minute, func() error {
			n, err := post()
			if err == nil && n != 3 {
				t.Fatalf("%d samples are accepted, want 3", n)
			}
			return err
		}); err != nil {
			t.Fatalf("the samples: got %v, want no error", err)
		}
	}
	for range 2 {
		taken()
		servers.Stop()
		if _, err := post(); err == nil || !strings.Contains(err.Error(), "HTTP 503") {
			t.Fatalf("without a cluster: got %v, want HTTP 503", err)
		}
		for _, n := range []*running{all, answers, folds} {
			expect(t, n, "/healthz", http.StatusOK, "")
		}
		expect(t, all, "/readyz", http.StatusServiceUnavailable, stuck)
		expect(t, all, "/readyz/ingest", http.StatusServiceUnavailable, stuck)
		for _, n := range []*running{answers, folds} {
			expect(t, n, "/readyz", http.StatusOK, `feed age ([3-9]|\d\d+)\.`)
		}
		stillReady()
		servers.Start()
	}
	taken()
	ended, end := context.WithCancel(t.Context())
	end()
	testkit.NoError(t, all.Drain(ended))
	expect(t, all, "/readyz/query", http.StatusServiceUnavailable, "^the node is ending;")
	if log.Count(operator.Key) > 0 {
		t.Error("the log: got the admin key in it, want it not")
	}
}
