package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

func lastState(t *testing.T, e *Engine) uint64 {
	t.Helper()
	_, info := stream(t, e.js, codec.States)
	return info.State.LastSeq
}

func lease(t *testing.T, e *Engine, node string) {
	t.Helper()
	testkit.NoError(t, e.Leases().Renew(t.Context(), node, 1, false))
}

func forgetConsumers(ctx context.Context, e *Engine, stream string) (n int) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return 0
	}
	for name := range s.ConsumerNames(ctx).Name() {
		if s.DeleteConsumer(ctx, name) == nil {
			n++
		}
	}
	return n
}

func TestFeedLosesConsumers(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{Patience: slowStore, Timeouts: watchful})
	ctx := testkit.Context(t)
	f := &feed{e: e, stream: codec.States, filters: []string{">"}}
	var last, newest atomic.Uint64
	f.apply = func(r store.Record) error {
		if r.Seq <= last.Load() {
			t.Errorf("the record: got %d after %d, want a later one", r.Seq, last.Load())
		}
		last.Store(r.Seq)
		if id, ok := codec.MemberOf(r.Subject); ok {
			var n uint64
			fmt.Sscanf(id, "car%d", &n)
			if n != newest.Load()+1 {
				t.Errorf("the lease: got car%d, want car%d", n, newest.Load()+1)
			}
			newest.Store(n)
		}
		return nil
	}
	background(t, func(ctx context.Context) error { return f.Run(ctx, func() {}) })
	forgotten := 0
	for n := uint64(1); forgotten < 8; n++ {
		lease(t, e, fmt.Sprintf("car%d", n))
		for before := forgotten; forgotten == before; {
			select {
			case <-ctx.Done():
				t.Fatalf("forgotten consumers: got %d until the deadline, want %d", forgotten, before+1)
			case <-time.After(2 * time.Millisecond):
			}
			forgotten += forgetConsumers(ctx, e, codec.States)
		}
		if forgotten%3 == 0 {
			testkit.Await(t, fmt.Sprintf("car%d comes", n), func() bool { return newest.Load() >= n })
		}
	}
}

func TestFeedOfBusyStream(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	for _, pending := range []uint64{0, 1} {
		f := &feed{e: e, stream: codec.States, filters: []string{">"}}
		f.goal = lastState(t, e)
		live := false
		f.caughtUp = func() { live = true }
		apply := func(seq, pending uint64) {
			t.Helper()
			lease(t, e, "other")
			f.last = seq
			testkit.NoError(t, f.progress(t.Context(), pending))
		}
		apply(f.goal-1, 1)
		for range 1 + pending {
			apply(f.goal, pending)
		}
		if now := lastState(t, e); live || f.goal > now || f.goal < now-2 {
			t.Fatalf("with %d pending: got the last goal %d, live %t; want %d to %d, not live", pending, f.goal, live,
				now-2, now)
		}
		apply(f.goal, pending)
		if !live {
			t.Fatal("live after the last goal: got false, want true")
		}
	}
}

// deaf drops requests for a consumer while lost returns true, as a server does that has stopped
// before the cluster has noticed it.
type deaf struct{ lost func() bool }

func (d deaf) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &toDeaf{c, d.lost}, err
}

type toDeaf struct {
	net.Conn
	lost func() bool
}

func (c *toDeaf) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("$JS.API.CONSUMER.CREATE.")) && c.lost() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A feed that gets no answer after a break must repeat its request sooner than the client library,
// which waits for 50 heartbeats. Heartbeats are the clock of the test.
func TestFeedOrdersAgain(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{Patience: slowStore, Timeouts: watchful})
	testkit.Await(t, "a heartbeat is stored", func() bool { return lastState(t, e) > 0 })
	const lost = 3
	orders := make(chan struct{}, 2*lost)
	ordered := 0 // number of requests; accessed only under the lock of the connection
	js := clustertest.JetStream(t, e.config.URLs, nats.SetCustomDialer(deaf{func() bool {
		ordered++
		select {
		case orders <- struct{}{}:
		default:
		}
		return ordered <= lost
	}}))
	f := &feed{e: &Engine{config: e.config, nc: js.Conn(), js: js}, stream: codec.States, filters: []string{">"}}
	_, info := stream(t, js, codec.States)
	from := info.State.LastSeq
	f.created.Store(info.Created.UnixNano())
	f.last, f.live = from, true
	f.apply = func(store.Record) error { return errors.New("only heartbeats are stored") }
	ctx := testkit.Context(t)
	background(t, func(ctx context.Context) error { return f.Run(ctx, func() {}) })
	beats, shortest := uint64(0), uint64(math.MaxUint64)
	for n := range lost {
		select {
		case <-orders:
		case <-ctx.Done():
			t.Fatalf("the orders: got %d until the deadline, want %d", n, lost)
		}
		now := lastState(t, e)
		if n > 0 {
			shortest = min(shortest, now-beats)
		}
		beats = now
	}
	if shortest >= 40 {
		t.Errorf("a new order at the soonest: got it after %d heartbeats, want fewer than 40", shortest)
	}
	if err := f.Wait(ctx, from+1); err != nil {
		t.Errorf("Wait for %d: got %v, want no error", from+1, err)
	}
}
