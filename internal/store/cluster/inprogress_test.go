package cluster

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

// The leader refuses a write because an earlier try is in progress. Until it ends, the checkpoint
// is not stored, and the partition not lost.
func saveInProgress(t *testing.T, c *clustertest.Cluster) {
	open(t, Config{Partitions: 1, URLs: c.URLs(), Replicas: 3})
	leader := c.Leader(codec.States)
	e := open(t, Config{Partitions: 1, URLs: "nats://" + leader.Addr, Replicas: 3,
		Timeouts: Timeouts{Try: time.Second}})
	ctx := testkit.Context(t)
	p := take(t, e, 0)
	nc := clustertest.JetStream(t, "nats://"+leader.Addr).Conn()
	answers, err := nc.SubscribeSync("_INBOX.>")
	testkit.NoError(t, err)
	testkit.NoError(t, nc.Flush())

	// Without a majority the leader accepts a write but cannot store it.
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *clustertest.Node) bool { return n == leader })
	for _, n := range others {
		n.Pause()
	}
	const tries = 3
	c7 := store.Checkpoint{Number: 7, First: 7, Seq: 70}
	done := make(chan error, 1)
	go func() { done <- saveAs(ctx, p, c7, "states") }()
	for refused := 0; refused < tries; {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("tries refused as in progress: got %d, then %v; want %d", refused, err, tries)
		}
		if bytes.Contains(m.Data, []byte(`"err_code":10164`)) {
			refused++
		}
	}
	for _, n := range others {
		n.Resume()
	}
	if err := <-done; err != nil {
		t.Fatalf("a checkpoint in progress: got %v, want no error", err)
	}
	if got := readCursor(t, e).Checkpoints; len(got) != 1 || got[0].Number != 7 || got[0].Pieces != 1 {
		t.Errorf("got checkpoints %+v, want %+v", got, c7)
	}
}
