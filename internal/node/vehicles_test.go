package node_test

import (
	"errors"
	"net/http"
	"regexp"
	"testing"

	"example.org/carstate/internal/node"
	"example.org/carstate/internal/test/testkit"
)

// At the limit, samples of new vehicles are refused and counted, but not those of known ones in the
// same request, also after a restart with a lower limit.
func TestVehiclesBeyondTheBound(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	c.MaxVehicles = 2
	key := ""
	post := func(n *running, want int, vids ...string) {
		t.Helper()
		if got, err := testkit.Post(n.URL(node.IngestAddr), key, vids); got != want || err != nil &&
			!errors.Is(err, testkit.ErrRefused) {
			t.Errorf("%v: got %d samples accepted, error %v; want %d", vids, got, err, want)
		}
	}
	metric := func(n *running, want string) {
		t.Helper()
		expect(t, n, "/metrics", http.StatusOK, "(?m)^"+regexp.QuoteMeta(want)+"$")
	}
	t.Run("it fills up", func(t *testing.T) {
		first := startNode(t, c)
		first.awaitReady(t)
		key = gateway(t, operatorOf(t, first))
		post(first, 2, "A", "B", "C")
		metric(first, "carstate_vehicles 2")
		post(first, 2, "A", "B", "C", "D")
		post(first, 0, "C")
		metric(first, "carstate_vehicles_limit 2")
		metric(first, `carstate_samples_refused_total{protocol="http",reason="vehicle_limit"} 4`)
	})
	c.MaxVehicles = 1
	second := startNode(t, c)
	second.awaitReady(t)
	post(second, 2, "A", "B", "C")
}
