package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/testkit"
)

// TestIngestAfterOutage checks that telemetry is accepted again after an outage of the cluster that
// lasted longer than a commit waits. The recovery must need no request, because load balancers send
// none while the node reports that it is not ready.
func TestIngestAfterOutage(t *testing.T) {
	t.Parallel()
	servers := clustertest.StartServer(t)
	c := configOf(t)
	c.Cluster.URLs, c.Store.Partitions = servers.URL(), 2
	c.Store.Patience.Store = 2 * time.Second
	c.Cluster.Timeouts = cluster.Timeouts{Try: time.Second, Stall: 2 * time.Second, Beat: 200 * time.Millisecond}
	n, log := startLogged(t, c)
	ready, alive := n.URL(AdminAddr)+"/readyz", n.URL(AdminAddr)+"/healthz"
	if err := until(30*time.Second, testkit.Says(ready, http.StatusOK, "")); err != nil {
		t.Fatal(err)
	}
	operator := operatorOf(t, n)
	// Because of this short time limit, a single slow write to the disk causes an error, although
	// the source was stored.
	source, tries := "", 0
	if err := until(30*time.Second, func() error {
		tries++
		s, err := operator.AddSource(t.Context(),
			access.Request{Name: fmt.Sprint("gateway", tries), Vehicles: access.AllVehicles()})
		source = s.Key
		return err
	}); err != nil {
		t.Fatal(err)
	}
	taken := func(when any) {
		t.Helper()
		if err := until(30*time.Second, func() error {
			accepted, err := testkit.Post(n.URL(IngestAddr), source, []string{"a", "b", "c"})
			if err == nil && accepted != 3 {
				t.Fatalf("%v: %d accepted", when, accepted)
			}
			return err
		}); err != nil {
			t.Fatalf("%v: %v", when, err)
		}
	}
	for round := range 2 {
		taken(round)
		servers.Stop()
		if _, err := testkit.Post(n.URL(IngestAddr), source, []string{"a", "b", "c"}); err == nil ||
			!strings.Contains(err.Error(), "HTTP 503") {
			t.Fatalf("without a cluster: %v", err)
		}
		if err := testkit.Says(ready, http.StatusServiceUnavailable, "")(); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Says(alive, http.StatusOK, "")(); err != nil {
			t.Fatalf("an outage is no reason to restart: %v", err)
		}
		servers.Start()
		if err := until(30*time.Second, testkit.Says(ready, http.StatusOK, "")); err != nil {
			t.Fatal(err)
		}
	}
	taken("in the end")
	if log.Count(operator.Key) > 0 {
		t.Error("the admin key is in the log")
	}
}

// TestEndsWhileOpening checks that a node can end while its engine is still being opened.
func TestEndsWhileOpening(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never sends a byte
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stalled, began := testkit.Stall(t.TempDir()), time.Now()
	urls := strings.Repeat("nats://"+l.Addr().String()+",", 3)
	e, err := openWithin(ctx, func() (*cluster.Engine, error) {
		return cluster.Open(ctx, cluster.Config{URLs: strings.TrimSuffix(urls, ",")})
	})
	if err == nil {
		e.Close()
		t.Fatal("there is no engine")
	}
	if took := time.Since(began); took-stalled() > 5*time.Second {
		t.Errorf("that took %s", took)
	}
	// The error must come from the node, because NATS alone would try to reach the three servers
	// for a longer time.
	if !strings.HasPrefix(err.Error(), "ended while the engine was being opened") {
		t.Error(err)
	}
}
