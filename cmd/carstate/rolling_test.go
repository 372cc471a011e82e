package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

type nodes struct {
	mu   sync.Mutex
	all  []*process
	next int
}

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

// callers retry a failed query on one other node, and a sample until it is acknowledged.
type callers struct {
	ask, take  *nodes // of queries, of telemetry
	token, key string
	stop       func()          // waits for them
	queries    [2]atomic.Int64 // by client

	retried, failed, refused atomic.Int64

	acked []string // each reports once
}

func startCallers(t *testing.T, ask, take *nodes, token, key string) *callers {
	t.Helper()
	testkit.NoError(t, until(time.Minute, func() error {
		_, err := post(take.all[0], key, []string{"known"})
		return err
	}))
	for _, p := range ask.all {
		testkit.NoError(t, until(time.Minute, func() error { return knows(p, token, "known") }))
	}
	l := &callers{ask: ask, take: take, token: token, key: key}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	l.stop = func() { cancel(); running.Wait() }
	t.Cleanup(l.stop)
	for client := range l.queries {
		running.Go(func() {
			for ctx.Err() == nil {
				l.queries[client].Add(1)
				_ = periodic.Pause(ctx, 20*time.Millisecond) // so that the processors have time for the nodes
				first := ask.one(nil)
				why := knows(first, token, "known")
				if why == nil {
					continue
				}
				l.retried.Add(1)
				if err := knows(ask.one(first), token, "known"); err != nil {
					l.failed.Add(1)
					t.Errorf("a query: got %v, and at the second node %v, want an answer", why, err)
				}
			}
		})
	}
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			vids := []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("c%d", i)}
			for ctx.Err() == nil {
				if got, err := post(take.one(nil), key, vids); err == nil && got == len(vids) {
					l.acked = append(l.acked, vids...)
					break
				}
				l.refused.Add(1)
				_ = periodic.Pause(ctx, 5*time.Millisecond)
			}
			_ = periodic.Pause(ctx, 50*time.Millisecond)
		}
	})
	return l
}

// seen waits for the queries in flight, of which the next node could otherwise fail one for the
// second time.
func (l *callers) seen(t *testing.T) {
	t.Helper()
	for client := range l.queries {
		before := l.queries[client].Load()
		testkit.NoError(t, until(time.Minute, func() error {
			if l.queries[client].Load() < before+2 {
				return errors.New("a client is at its query of before")
			}
			return nil
		}))
	}
}

func (l *callers) end(t *testing.T) {
	t.Helper()
	l.stop()
	t.Logf("%d queries, %d tried again, %d failed; %d samples acknowledged, %d requests refused",
		l.queries[0].Load()+l.queries[1].Load(), l.retried.Load(), l.failed.Load(), len(l.acked), l.refused.Load())
	if len(l.acked) == 0 || l.queries[0].Load() == 0 || l.queries[1].Load() == 0 {
		t.Fatalf("the load: got %d samples acknowledged, want some, and queries", len(l.acked))
	}
	for i, vid := range l.acked {
		if err := until(time.Minute, func() error { return knows(l.ask.all[i%len(l.ask.all)], l.token, vid) }); err != nil {
			for node, p := range l.ask.all {
				t.Logf("node %d about %s: %v", node, vid, knows(p, l.token, vid))
			}
			t.Fatalf("sample %d of %d, acknowledged: got %v, want an answer", i, len(l.acked), err)
		}
	}
}

func TestRollingRestart(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	flags := []string{"--nats", c.URLs(), "--replicas", "3", "--partitions", "8", "--max-age", "24h"}
	var dirs []string
	n := new(nodes)
	for i := range 3 {
		dirs = append(dirs, t.TempDir())
		n.all = append(n.all, start(t, dirs[i], flags...))
	}
	l := startCallers(t, n, n, n.all[0].issue(t), n.all[0].addSource(t, "gateway"))
	for i := range n.all {
		took := n.all[i].stop(t)
		n.replace(i, start(t, dirs[i], flags...))
		l.seen(t)
		t.Logf("node %d ended in %.1f s", i, took.Seconds())
	}
	for _, s := range c.Nodes {
		s.Stop()
		s.Start()
		c.WaitReady()
	}
	for i := range n.all {
		ready := n.all[i].URL(nodeprocess.Admin) + "/readyz"
		testkit.NoError(t, until(time.Minute, wants(ready, http.StatusOK)))
	}
	l.end(t)
}

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
