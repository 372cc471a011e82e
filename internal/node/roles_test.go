package node_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

func nodeOf(t *testing.T, urls, role string, maxFeedAge time.Duration) *running {
	t.Helper()
	c := configOf(t, role)
	c.MaxFeedAge = maxFeedAge
	c.Cluster.URLs, c.Cluster.Replicas, c.Store.Partitions = urls, 3, 2
	n := startNode(t, c)
	n.awaitReady(t)
	return n
}

func (n *running) awaitReady(t *testing.T) {
	t.Helper()
	testkit.NoError(t, until(time.Minute, n.Ready))
}

// A node with only the role ingest or derive is not sent the states, but knows how old its copies
// are, and which vehicles were forgotten.
func TestWhoFollowsStates(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	const maxFeedAge = 5 * time.Second
	folds := nodeOf(t, c.URLs(), node.Derive, maxFeedAge)
	answers := nodeOf(t, c.URLs(), node.Query, maxFeedAge)
	shows := nodeOf(t, c.URLs(), node.Admin, maxFeedAge)
	ingests := nodeOf(t, c.URLs(), node.Ingest, maxFeedAge)
	operator := operatorOf(t, shows)
	key := gateway(t, operator)
	token, err := operator.IssueToken(t.Context(),
		access.Credential{Developer: "Ada", Operations: access.AllOperations, Vehicles: access.AllVehicles()})
	testkit.NoError(t, err)

	cars := []string{"car0", "car1", "car2", "car3"}
	posted := func() error {
		n, err := testkit.Post(ingests.URL(node.IngestAddr), key, cars)
		if err == nil && n != len(cars) {
			err = fmt.Errorf("%d samples are accepted", n)
		}
		return err
	}
	testkit.NoError(t, until(time.Minute, posted))
	answered := func(vid string) func() error {
		return func() error {
			_, text, err := testkit.Get(answers.URL(node.QueryAddr) + "/api/ic/if_dt_tflow_car_driving_state?access_token=" +
				token.AccessToken + "&vid=" + vid)
			if err == nil && !strings.Contains(text, `"status":1`) {
				err = fmt.Errorf("%s: %s", vid, text)
			}
			return err
		}
	}
	for _, vid := range cars {
		testkit.NoError(t, until(time.Minute, answered(vid)))
	}
	for _, s := range []*running{answers, shows} {
		expect(t, s, "/metrics", http.StatusOK, `(?m)^carstate_vehicles 4$`)
	}
	for _, s := range []*running{ingests, folds} {
		expect(t, s, "/metrics", http.StatusOK, `(?m)^carstate_vehicles 0$`)
	}
	_, err = operator.Forget(t.Context(), "car0")
	testkit.NoError(t, err)
	testkit.NoError(t, until(time.Minute, func() error {
		_, err := testkit.Post(ingests.URL(node.IngestAddr), key, cars[:1])
		if err != nil && strings.Contains(err.Error(), "the vehicle was forgotten") {
			return nil
		}
		return fmt.Errorf("a vehicle that is forgotten is not refused: %v", err)
	}))
	cars = cars[1:]

	// Nodes that cannot reach the engine report that, and recover.
	for _, n := range c.Nodes[:2] {
		n.Kill()
	}
	for _, s := range []*running{answers, shows, ingests, folds} {
		expect(t, s, "/readyz", http.StatusServiceUnavailable, "out of touch with the engine for ")
	}
	if _, err := testkit.Post(ingests.URL(node.IngestAddr), key, cars); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprint(http.StatusServiceUnavailable)) {
		t.Errorf("telemetry out of touch: got %v, want HTTP %d", err, http.StatusServiceUnavailable)
	}
	for _, n := range c.Nodes[:2] {
		n.Start()
	}
	for _, s := range []*running{answers, shows, ingests, folds} {
		s.awaitReady(t)
	}
	if err := until(time.Minute, posted); err != nil {
		t.Errorf("the samples: got %v, want no error", err)
	}
}

func TestAllow_OnceErased(t *testing.T) {
	t.Parallel()
	testkit.Slow(t, "the erasure begins every 10 s")
	c := configOf(t)
	c.Store.Retention, c.Checkpoint = time.Second, time.Second
	c.Store.Patience = store.Patience{Store: 100 * time.Millisecond, Markers: time.Second}
	n := startNode(t, c)
	n.awaitReady(t)
	operator := operatorOf(t, n)
	key, car := gateway(t, operator), []string{"car0"}
	post := func() error { _, err := testkit.Post(n.URL(node.IngestAddr), key, car); return err }
	testkit.NoError(t, until(time.Minute, post))
	_, err := operator.Forget(t.Context(), "car0")
	testkit.NoError(t, err)
	allow := func() error { _, err := operator.Allow(t.Context(), "car0"); return err }
	const early = "the vehicle is not erased yet: try again after 20"
	if err := allow(); err == nil || !strings.HasPrefix(err.Error(), early) {
		t.Errorf("before it is erased: got %v, want %s", err, early)
	}
	testkit.NoError(t, until(time.Minute, allow))
	testkit.NoError(t, until(time.Minute, post))
}
