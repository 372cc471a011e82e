package node_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/node"
	"example.org/carstate/internal/test/testkit"
)

func TestEndsWhileOpening(t *testing.T) {
	testkit.Slow(t, "it waits for servers that do not answer")
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stalled, began := testkit.Stall(t.TempDir()), time.Now()
	urls := strings.Repeat("nats://"+l.Addr().String()+",", 3)
	c := configOf(t)
	c.Cluster.URLs = strings.TrimSuffix(urls, ",")
	if n, err := node.Start(ctx, c); err == nil {
		n.Close()
		t.Fatal("Start: got no error, want one")
	} else if !strings.HasPrefix(err.Error(), "ended while the engine was being opened") {
		t.Errorf(`Start: got %v, want "ended while the engine was being opened"`, err)
	}
	// NATS alone would try to reach the three servers for longer.
	if took := time.Since(began); took-stalled() > 5*time.Second {
		t.Errorf("Start: got its end after %s, want it within 5s", took)
	}
}
