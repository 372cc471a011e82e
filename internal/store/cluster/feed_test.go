package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// forgetConsumers deletes a stream's consumers on the server.
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

// TestFeedLosesConsumers deletes the consumer of a feed repeatedly, at any moment. The feed must
// deliver every change in order, and none twice.
func TestFeedLosesConsumers(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := openOne(t, Config{Patience: slowStore, Timeouts: watchful})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	p, err := e.take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	f := e.newFeed(codec.States)
	var last, newest atomic.Uint64
	f.apply = func(r store.Record) error {
		if r.Seq <= last.Load() {
			t.Errorf("record %d came after %d", r.Seq, last.Load())
		}
		last.Store(r.Seq)
		if id, ok := codec.VehicleOfState(r.Subject); ok {
			var n uint64
			fmt.Sscanf(string(id), "car%d", &n)
			if n != newest.Load()+1 {
				t.Errorf("car%d came after car%d", n, newest.Load())
			}
			newest.Store(n)
		}
		return nil
	}
	var running sync.WaitGroup
	feeding, stop := context.WithCancel(ctx)
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := f.run(feeding); err != nil {
			t.Error(err)
		}
	})
	forgotten := 0
	for n := uint64(1); forgotten < 8; n++ {
		id := vehicle.ID(fmt.Sprintf("car%d", n))
		state := vehicle.Observe(vehicle.State{}, speedAt(string(id), 1))
		if err := p.Commit(ctx, n, map[vehicle.ID]*vehicle.State{id: &state}); err != nil {
			t.Fatal(err)
		}
		// The next consumer is deleted as soon as it exists.
		for before := forgotten; forgotten == before; {
			select {
			case <-ctx.Done():
				t.Fatalf("%d consumers were forgotten", forgotten)
			case <-time.After(2 * time.Millisecond):
			}
			forgotten += forgetConsumers(ctx, e, codec.States)
		}
		if forgotten%3 == 0 {
			for newest.Load() < n {
				select {
				case <-ctx.Done():
					t.Fatalf("car%d did not come", n)
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	}
}

// TestFeedOfBusyStream checks that a feed catches up although other writers write to its stream all
// the time, so that NATS always has more records to send.
func TestFeedOfBusyStream(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{})
	end := func() uint64 {
		s, err := e.js.Stream(t.Context(), codec.States)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	p, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	for _, pending := range []uint64{0, 1} {
		f := e.newFeed(codec.States)
		f.goal = end()
		live := false
		f.caughtUp = func() { live = true }
		apply := func(seq, pending uint64) {
			t.Helper()
			f.last = seq
			if err := f.progress(t.Context(), pending); err != nil {
				t.Fatal(err)
			}
		}
		apply(f.goal-1, 1)
		// Simulate another writer.
		if err := p.Commit(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		if live {
			t.Fatal("live before the record that was the last one at the start")
		}
		apply(f.goal, pending)
		if live != (pending == 0) {
			t.Fatalf("with %d pending at the first goal: live is %t", pending, live)
		}
		if now := end(); pending == 1 && (f.goal > now || f.goal < now-2) {
			t.Fatalf("the second goal is %d; the stream ends at %d", f.goal, now)
		}
		apply(f.goal, pending)
		if !live {
			t.Fatal("not live after the second goal")
		}
	}
}

// deaf is a dialer whose connections drop a request for a consumer if lost returns true. The client
// gets no answer, as from a server that has stopped before the cluster has noticed it.
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

// TestFeedOrdersAgain checks a feed that resumes after a break and gets no answer to its request
// for a consumer. The feed must repeat the request, and must deliver records once NATS answers. At
// least two requests must be fewer than 40 stored heartbeats apart; the client library alone would
// repeat the request only after 50. The heartbeats serve as the clock: there are ten per second, or
// fewer on a slow machine.
func TestFeedOrdersAgain(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := openOne(t, Config{Patience: slowStore, Timeouts: watchful})
	s, err := e.js.Stream(t.Context(), codec.States)
	if err != nil {
		t.Fatal(err)
	}
	end := func() uint64 {
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.LastSeq
	}
	testkit.Await(t, "a heartbeat is stored", func() bool { return end() > 0 })
	const lost = 3
	orders := make(chan struct{}, 2*lost)
	ordered := 0 // number of requests; accessed only under the lock of the connection
	nc, err := nats.Connect(e.config.URLs, nats.SetCustomDialer(deaf{func() bool {
		ordered++
		select {
		case orders <- struct{}{}:
		default:
		}
		return ordered <= lost
	}}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(&conn{config: e.config, log: e.log, nc: nc, js: js}, codec.States)
	f.beat = e.beats[codec.States]
	from := end()
	f.created, f.last, f.heard, f.live = s.CachedInfo().Created, from, time.Now(), true // as after a break
	f.apply = func(store.Record) error { return errors.New("only heartbeats are stored") }
	ctx, stop := context.WithCancel(testkit.Context(t))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := f.run(ctx); err != nil {
			t.Error(err)
		}
	})
	beats, shortest := uint64(0), uint64(math.MaxUint64)
	for n := range lost {
		select {
		case <-orders:
		case <-ctx.Done():
			t.Fatalf("only %d orders were given", n)
		}
		now := end()
		if n > 0 {
			shortest = min(shortest, now-beats)
		}
		beats = now
	}
	if shortest >= 40 {
		t.Errorf("it orders again after %d heartbeats at the soonest", shortest)
	}
	if err := f.Wait(ctx, from+1); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
}
