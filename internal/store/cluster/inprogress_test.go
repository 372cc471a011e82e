package cluster_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// TestCommitInProgress checks a commit whose batch the leader refuses because an earlier try of the
// same batch is still in progress. The refusal does not say whether the earlier try will be stored.
// So until that is known, the commit must count neither the states of the batch as stored nor the
// partition as lost.
func TestCommitInProgress(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	open(t, cluster.Config{Partitions: 1, URLs: c.URLs(), Replicas: 3})
	leader := c.Leader(codec.States)
	e := open(t, cluster.Config{Partitions: 1, URLs: "nats://" + leader.Addr, Replicas: 3,
		Timeouts: cluster.Timeouts{Try: time.Second}})
	ctx := testkit.Context(t)
	p, err := e.Take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("nats://" + leader.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	answers, err := nc.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}

	// Without a majority the leader accepts a batch but cannot store it.
	for _, n := range c.Nodes {
		if n != leader {
			n.Pause()
		}
	}
	const batches = 3
	states := make(map[vehicle.ID]*vehicle.State)
	ids := make([]vehicle.ID, (batches-1)*store.BatchStates+1)
	for i := range ids {
		ids[i] = vehicle.ID(fmt.Sprintf("Car%d", i))
		states[ids[i]] = new(vehicle.Observe(vehicle.State{}, sample(string(ids[i]), 1000, 10)))
	}
	done := make(chan error, 1)
	go func() { done <- p.Commit(ctx, 7, states) }()
	for refused := 0; refused < batches; {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("the leader has refused %d batches as in progress: %v", refused, err)
		}
		if bytes.Contains(m.Data, []byte(`"err_code":10164`)) {
			refused++
		}
	}
	for _, n := range c.Nodes {
		if n != leader {
			n.Resume()
		}
	}
	if err := <-done; err != nil {
		t.Fatalf("a commit in progress: %v", err)
	}
	found := 0
	for first := 0; first < len(ids); first += store.MaxLoad {
		if err := p.Load(ctx, ids[first:min(first+store.MaxLoad, len(ids))],
			func(int, vehicle.State) { found++ }); err != nil {
			t.Fatal(err)
		}
	}
	if found != len(ids) {
		t.Errorf("the cursor has moved past samples of %d vehicles, and the states of %d are stored", len(ids), found)
	}
}
