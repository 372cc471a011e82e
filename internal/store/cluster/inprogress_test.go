package cluster

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

// commitInProgress checks a commit whose batch the leader refuses because an earlier try of the
// same batch is still in progress. The refusal does not say whether the earlier try will be stored.
// So until that is known, the commit must count neither the states of the batch as stored nor the
// partition as lost.
func commitInProgress(t *testing.T, c *clustertest.Cluster) {
	open(t, Config{Partitions: 1, URLs: c.URLs(), Replicas: 3})
	leader := c.Leader(codec.States)
	e := open(t, Config{Partitions: 1, URLs: "nats://" + leader.Addr, Replicas: 3,
		Timeouts: Timeouts{Try: time.Second}})
	ctx := testkit.Context(t)
	p := take(t, e, 0)
	nc := clustertest.JetStream(t, "nats://"+leader.Addr).Conn()
	answers, err := nc.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}

	// Without a majority the leader accepts a batch but cannot store it.
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *clustertest.Node) bool { return n == leader })
	for _, n := range others {
		n.Pause()
	}
	const tries = 3
	states := statesOf(store.BatchStates)
	done := make(chan error, 1)
	go func() { done <- p.Commit(ctx, 7, storetest.Packed(states), false) }()
	for refused := 0; refused < tries; {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("the leader has refused %d tries as in progress: %v", refused, err)
		}
		if bytes.Contains(m.Data, []byte(`"err_code":10164`)) {
			refused++
		}
	}
	for _, n := range others {
		n.Resume()
	}
	if err := <-done; err != nil {
		t.Fatalf("a commit in progress: %v", err)
	}
	if found := len(storetest.StoredStates(t, e, 0)); found != len(states) {
		t.Errorf("the cursor has moved past samples of %d vehicles, and the states of %d are stored", len(states), found)
	}
}
