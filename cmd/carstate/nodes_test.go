package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

type reporting struct {
	vids   []string
	acked  atomic.Int64 // sent, Unix ns; the newest
	failed atomic.Int64 // requests
}

func (r *reporting) report(ctx context.Context, key string, nodes ...*process) {
	for ctx.Err() == nil {
		sent := time.Now()
		for _, p := range nodes {
			n, err := post(p, key, r.vids)
			if err == nil && n == len(r.vids) {
				r.acked.Store(sent.UnixNano())
				break
			}
			r.failed.Add(1)
		}
		_ = periodic.Pause(ctx, 50*time.Millisecond)
	}
}

func (r *reporting) fresh(p *process, token string, since time.Time) error {
	for _, vid := range r.vids {
		a, err := p.ask(drivingPath, token, vid)
		if err != nil {
			return err
		}
		if a.Status != 1 || !a.Modified.After(since) { // whole seconds
			return fmt.Errorf("%s: %+v", vid, a)
		}
	}
	return nil
}

// Revocations reach all nodes. After a derive node and a server are killed, every vehicle gets new
// answers. Without any server, queries are answered for --max-feed-age. The log says how long each
// takes.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	const maxFeedAge = 8 * time.Second
	node := func(roles string) *process {
		return start(t, t.TempDir(), "--nats", c.URLs(), "--replicas", "3", "--partitions", "8",
			"--max-feed-age", maxFeedAge.String(), "--roles", roles)
	}
	folds := []*process{node("query,derive,admin"), node("query,derive,admin")}
	door := node("query,ingest,admin")
	all := append([]*process{door}, folds...)
	token, key := door.issue(t), door.addSource(t, "gateway")
	r := new(reporting)
	for i := range 24 {
		r.vids = append(r.vids, fmt.Sprintf("car%d", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.report(ctx, key, door) })
	defer running.Wait()
	defer stop()
	everywhere := func(what string, nodes []*process, since time.Time) {
		t.Helper()
		for _, p := range nodes {
			if err := until(testkit.Patience, func() error { return r.fresh(p, token, since) }); err != nil {
				t.Fatalf("%s: got %v, want fresh answers", what, err)
			}
		}
		t.Logf("%s: every vehicle has a new answer %.1f s later", what, time.Since(since).Seconds())
	}
	everywhere("the start", all, time.Now())

	revocations(t, door, all)

	killed := time.Now()
	folds[0].Kill()
	everywhere("a node that folds was killed", []*process{door, folds[1]}, killed)

	// From the moment at which writes work again.
	c.Leader(codec.Telemetry).Kill()
	killed = time.Now()
	testkit.NoError(t, until(testkit.Patience, func() error {
		if acked := time.Unix(0, r.acked.Load()); !acked.After(killed) {
			return errors.New("nothing is acknowledged")
		}
		return nil
	}))
	t.Logf("a server was killed: telemetry is acknowledged %.1f s later", time.Since(killed).Seconds())
	everywhere("writes resumed", []*process{door, folds[1]}, time.Now())

	// Before the servers are killed, every feed must have been in touch again.
	var fed time.Time // or later
	testkit.NoError(t, until(testkit.Patience, func() error {
		looked := time.Now()
		m, err := door.Metrics(t.Context())
		if err != nil {
			return err
		}
		worst := 0.0
		for name, age := range m {
			if strings.HasPrefix(name, "carstate_feed_age_seconds{") {
				worst = max(worst, age)
			}
		}
		if worst > maxFeedAge.Seconds()/2 {
			return fmt.Errorf("a feed's age is %.1f s", worst)
		}
		fed = looked.Add(-time.Duration(worst * float64(time.Second)))
		return nil
	}))
	for _, n := range c.Nodes {
		n.Kill()
	}
	gone := time.Now()
	answers := 0
	var refused time.Time
	err := until(testkit.Patience, func() error {
		since := time.Since(gone)
		a, err := door.ask(drivingPath, token, "car0")
		if err != nil {
			return err
		}
		if a.HTTP == http.StatusOK {
			answers++
			// The last heartbeat may have been in flight.
			if since > maxFeedAge+time.Second {
				t.Errorf("a query %s after the last server went: got an answer, want none", since)
			}
			return errors.New("it answers")
		}
		if a.HTTP != http.StatusServiceUnavailable {
			t.Errorf("a query without any server: got HTTP %d, want 200 or 503", a.HTTP)
		}
		refused = time.Now()
		return nil
	})
	testkit.NoError(t, err)
	t.Logf("without any server: %d answers until %.1f s later", answers, refused.Sub(gone).Seconds())
	if age := refused.Sub(fed); age < maxFeedAge {
		t.Errorf("the age of the copies at the first refusal: got %s, want %s or more", age, maxFeedAge)
	}
	testkit.NoError(t, wants(door.URL(nodeprocess.Admin)+"/readyz", http.StatusServiceUnavailable)())
	for _, n := range c.Nodes {
		n.Start()
	}
	everywhere("the servers are back", []*process{door, folds[1]}, time.Now())
}

// revocations measures for how long a revoked token is accepted.
func revocations(t *testing.T, by *process, nodes []*process) {
	t.Helper()
	secret, err := ops.LoadKey(by.Dir)
	testkit.NoError(t, err)
	client := &client.Client{URL: by.URL(nodeprocess.Admin), Key: secret}
	const tokens = 40
	var took []time.Duration
	for range tokens {
		issued, err := client.IssueToken(t.Context(), access.Credential{
			Developer: "Ada", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
			Expires: time.Now().Add(time.Hour),
		})
		testkit.NoError(t, err)
		accepted := func(p *process, want bool) error {
			a, err := p.ask(drivingPath, issued.AccessToken, "car0")
			if err == nil && (a.HTTP == http.StatusOK) != want {
				err = fmt.Errorf("HTTP %d", a.HTTP)
			}
			return err
		}
		for _, p := range nodes {
			if err := until(30*time.Second, func() error { return accepted(p, true) }); err != nil {
				t.Fatalf("a new token: got %v, want it accepted", err)
			}
		}
		_, err = client.RevokeToken(t.Context(), issued.ID)
		testkit.NoError(t, err)
		revoked := time.Now()
		for _, p := range nodes {
			if err := until(30*time.Second, func() error { return accepted(p, false) }); err != nil {
				t.Fatalf("a revoked token: got %v, want it refused", err)
			}
		}
		took = append(took, time.Since(revoked))
	}
	slices.Sort(took)
	t.Logf("%d tokens are refused on %d nodes %v (median) and %v (the longest) after their revocation was answered",
		tokens, len(nodes), took[tokens/2].Round(time.Millisecond), took[tokens-1].Round(time.Millisecond))
}
