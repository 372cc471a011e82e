package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/stream/streamtest"
)

// nodes are those that a load balancer knows.
type nodes struct {
	mu   sync.Mutex
	all  []*process
	next int
}

// one returns the next node in turn, but not the one that has just failed.
func (n *nodes) one(failed *process) *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	if p := n.all[n.next%len(n.all)]; p != failed {
		return p
	}
	n.next++
	return n.all[n.next%len(n.all)]
}

func (n *nodes) replace(i int, p *process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[i] = p
}

// Everything is restarted one after the other under load: the nodes, which all do
// everything, and the servers. No query fails that is tried once more, on the next
// node, and every sample that was acknowledged is answered for.
func TestRollingRestart(t *testing.T) {
	c := streamtest.StartCluster(t)
	flags := []string{"--nats", c.URLs(), "--replicas", "3", "--partitions", "8", "--max-age", "24h"}
	var dirs []string
	n := new(nodes)
	for i := range 3 {
		dirs = append(dirs, t.TempDir())
		n.all = append(n.all, start(t, dirs[i], flags...))
	}
	token, key := n.all[0].issue(t), n.all[0].addSource(t, "gateway")
	if _, err := post(n.all[0], key, []string{"known"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range n.all {
		if err := until(time.Minute, func() error { return knows(p, token, "known") }); err != nil {
			t.Fatal(err)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	var retried, failed, refused atomic.Int64
	var queries [2]atomic.Int64 // by client
	for client := range queries {
		load.Go(func() {
			for ctx.Err() == nil {
				queries[client].Add(1)
				first := n.one(nil)
				why := knows(first, token, "known")
				if why == nil {
					continue
				}
				retried.Add(1)
				if err := knows(n.one(first), token, "known"); err != nil {
					failed.Add(1)
					t.Errorf("a query failed twice: %v, %v", why, err)
				}
			}
		})
	}
	var acked []string // vehicles; each reports once
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			vids := []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("c%d", i)}
			for ctx.Err() == nil {
				if got, err := post(n.one(nil), key, vids); err == nil && got == len(vids) {
					acked = append(acked, vids...)
					break
				}
				refused.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})

	for i := range n.all {
		took := n.all[i].stop(t)
		n.replace(i, start(t, dirs[i], flags...))
		// Until all know the new one, the next one is not ended.
		for client := range queries {
			seen := queries[client].Load()
			if err := until(time.Minute, func() error {
				if queries[client].Load() < seen+2 {
					return errors.New("a client is at its query of before")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("node %d ended in %.1f s", i, took.Seconds())
	}
	for _, s := range c.Nodes {
		s.Stop()
		s.Start()
		c.WaitReady() // with copies on all three again
	}
	for i := range n.all {
		ready := n.all[i].URL(nodeprocess.Admin) + "/readyz"
		if err := until(time.Minute, wants(ready, http.StatusOK)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	load.Wait()
	t.Logf("%d queries, %d tried again, %d failed; %d samples acknowledged, %d requests refused", queries[0].Load()+queries[1].Load(), retried.Load(), failed.Load(), len(acked), refused.Load())
	if len(acked) == 0 || queries[0].Load() == 0 || queries[1].Load() == 0 {
		t.Fatal("there was no load")
	}
	for i, vid := range acked {
		if err := until(time.Minute, func() error { return knows(n.all[i%len(n.all)], token, vid) }); err != nil {
			for node, p := range n.all {
				t.Logf("node %d about %s: %v", node, vid, knows(p, token, vid))
			}
			t.Fatalf("sample %d of %d, acknowledged: %v", i, len(acked), err)
		}
	}
}

// knows is an error unless a node knows the vehicle's verdict.
func knows(p *process, token, vid string) error {
	a, err := p.ask(drivingPath, token, vid)
	switch {
	case err != nil:
		return err
	case a.HTTP != http.StatusOK || a.Status != 1:
		return fmt.Errorf("%+v", a)
	}
	return nil
}
