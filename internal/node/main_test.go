package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	clustertest.End()
	os.Exit(code)
}

// on free ports and without MQTT, with all roles unless some are given
func configOf(t *testing.T, roles ...string) node.Config {
	t.Helper()
	if len(roles) == 0 {
		roles = []string{node.Query, node.Ingest, node.Derive, node.Admin}
	}
	c := node.Config{Roles: roles, MaxAge: 5 * time.Minute, MaxFeedAge: time.Minute, MaxStretches: 1_000_000,
		Log: slog.New(slog.DiscardHandler), LogLevel: new(slog.LevelVar)}
	c.Store.DataDir, c.Store.Retention = t.TempDir(), time.Hour
	c.Listeners = []node.Listener{{Name: node.AdminAddr, Addr: "127.0.0.1:0"}}
	for name, role := range map[string]string{node.QueryAddr: node.Query, node.IngestAddr: node.Ingest} {
		if slices.Contains(roles, role) {
			c.Listeners = append(c.Listeners, node.Listener{Name: name, Addr: "127.0.0.1:0"})
		}
	}
	return c
}

type running struct {
	*node.Node
	config node.Config
}

func startNode(t *testing.T, c node.Config) *running {
	t.Helper()
	n, _ := startLogged(t, c)
	return n
}

func startLogged(t *testing.T, c node.Config) (*running, *testkit.Buffer) {
	t.Helper()
	log := new(testkit.Buffer)
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	n, err := node.Start(t.Context(), c)
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
		if t.Failed() {
			t.Logf("log of the node with the roles %v:\n%s", c.Roles, log)
		}
	})
	return &running{n, c}, log
}

func operatorOf(t *testing.T, n *running) *client.Client {
	t.Helper()
	key, err := ops.LoadKey(n.config.Store.DataDir)
	testkit.NoError(t, err)
	return &client.Client{URL: n.URL(node.AdminAddr), Key: key}
}

// With a short time limit, a slow disk causes an error although the source was stored.
func gateway(t *testing.T, operator *client.Client) (key string) {
	t.Helper()
	tries := 0
	if err := until(time.Minute, func() error {
		tries++
		s, err := operator.AddSource(t.Context(),
			access.Credential{Name: fmt.Sprint("gateway", tries), Vehicles: access.AllVehicles()})
		key = s.Key
		return err
	}); err != nil {
		t.Fatalf("the source: got %v, want no error", err)
	}
	return key
}

func expect(t *testing.T, n *running, path string, code int, pattern string) {
	t.Helper()
	if err := until(time.Minute, testkit.Says(n.URL(node.AdminAddr)+path, code, pattern)); err != nil {
		t.Errorf("%s: got %v, want %d with %q", path, err, code, pattern)
	}
}

func until(limit time.Duration, ask func() error) error {
	return nodeprocess.Until(context.Background(), limit, func(context.Context) error { return ask() })
}
