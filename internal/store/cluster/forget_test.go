package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// node is a running node: a [storetest.Node], which runs the parts of the service that use an
// engine, and the engine.
type node struct {
	*storetest.Node
	cluster *Engine
}

func startNode(t *testing.T, c Config) node {
	t.Helper()
	e, err := Open(t.Context(), onServer(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return node{storetest.Start(t, e, c.Config), e}
}

// TestForgetOnEveryNode checks that if one of two nodes forgets a vehicle, it is forgotten on both
// nodes. Neither a fold in progress on the other node nor waiting samples may bring it back. After
// the vehicle is allowed again, only samples that are stored later may count.
func TestForgetOnEveryNode(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	url := clustertest.Account(t)
	a := startNode(t, Config{Partitions: 4, URLs: url})
	b := startNode(t, Config{URLs: url})
	p := codec.PartitionOf(storetest.SecretVID, 4)
	a.GrantAll(t)
	a.Put(t, storetest.Speed(storetest.SecretVID, 1000, 50), storetest.Speed("Other1", 1000, 50))
	for q := range 4 {
		b.FoldAll(t, q)
	}
	testkit.Await(t, "both know the vehicle",
		func() bool { return a.Knows(storetest.SecretVID) && b.Knows(storetest.SecretVID) })
	testkit.Await(t, "both know the grants",
		func() bool { tokens, sources := b.Grants(); return tokens == 3 && sources == 3 })

	// A fold is in progress on node b: it has read the sample, and has not stored the state.
	a.Put(t, storetest.Speed(storetest.SecretVID, 2000, 50))
	part := take(t, b.cluster, p)
	seq, samples, err := part.Next(t.Context())
	if err != nil || len(samples) != 1 {
		t.Fatalf("Next: got %v, %v, want one sample", samples, err)
	}
	// More samples wait to be folded.
	a.Put(t, storetest.Speed(storetest.SecretVID, 3000, 50))

	r, err := a.Forget(t.Context(), storetest.SecretVID)
	if err != nil {
		t.Fatal(err)
	}
	if want := (access.RemovedCount{States: 1, TokenGrants: 3, SourceGrants: 3}); r.Removed != want ||
		r.ErasedBy != nil || r.AllowedAt != nil {
		t.Errorf("the receipt: got %+v, want %+v without times", r, want)
	}
	if text, _ := json.Marshal(r); bytes.Contains(text, []byte(storetest.SecretVID)) {
		t.Errorf("the receipt names the vehicle: %s", text)
	}
	if a.Knows(storetest.SecretVID) {
		t.Error("the node that was asked still knows the vehicle")
	}
	if _, ok, err := store.State(t.Context(), a.Engine, storetest.SecretVID); ok || err != nil {
		t.Errorf("a state is stored: %v", err)
	}
	if tokens, sources := a.Grants(); tokens != 0 || sources != 0 {
		t.Errorf("%d tokens and %d sources still name it", tokens, sources)
	}
	testkit.Await(t, "the other node has forgotten it", func() bool {
		tokens, sources := b.Grants()
		return !b.Knows(storetest.SecretVID) && b.Forgotten().Has(storetest.SecretVID) && tokens == 0 && sources == 0
	})
	states := map[vehicle.ID]*vehicle.State{storetest.SecretVID: new(vehicle.Observe(vehicle.State{}, samples[0]))}
	err = part.Commit(t.Context(), seq, storetest.Packed(states), false)
	if !errors.Is(err, store.ErrRecalled) {
		t.Errorf("a fold from before was stored: %v", err)
	}
	part.Close()
	b.FoldAll(t, p)
	if _, ok, _ := store.State(t.Context(), b.Engine, storetest.SecretVID); ok {
		t.Error("samples that waited brought it back")
	}

	// After the vehicle is allowed, only samples that are stored later count.
	b.Put(t, storetest.Speed(storetest.SecretVID, 4000, 50)) // by a node that did not know
	if _, err := b.Allow(t.Context(), storetest.SecretVID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Allow(t.Context(), storetest.SecretVID); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("allowed twice: %v", err)
	}
	testkit.Await(t, "the other node takes it in", func() bool { return !a.Forgotten().Has(storetest.SecretVID) })
	a.Put(t, storetest.Speed(storetest.SecretVID, 5000, 50))
	a.FoldAll(t, p)
	s, ok, err := store.State(t.Context(), a.Engine, storetest.SecretVID)
	if want := vehicle.Observe(vehicle.State{}, storetest.Speed(storetest.SecretVID, 5000, 50)); err != nil || !ok ||
		s != want {
		t.Errorf("it did not start afresh: %v %+v", ok, s)
	}
	testkit.Await(t, "both know it again",
		func() bool { return a.Knows(storetest.SecretVID) && b.Knows(storetest.SecretVID) })
}

// TestForgetWithoutStoredState forgets a vehicle without a stored state. This happens when STATES
// is full: it then drops the record of the vehicle that has been silent for the longest time, while
// every node's table still has the vehicle's answer. The receipt must count no removed state, and
// the node must not answer for the vehicle any more.
func TestForgetWithoutStoredState(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	n := startNode(t, Config{Partitions: 4})
	n.Drive(t, 1000, storetest.SecretVID)
	testkit.Await(t, "the table knows it", func() bool { return n.Knows(storetest.SecretVID) })
	s, _ := stream(t, n.cluster.js, codec.States)
	is, err := n.Last(t.Context(), codec.States,
		codec.StateSubject(codec.PartitionOf(storetest.SecretVID, n.Partitions()), storetest.SecretVID))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), is.Seq); err != nil {
		t.Fatal(err)
	}
	if r := n.MustForget(t, storetest.SecretVID); r.Removed.States != 0 {
		t.Errorf("the receipt: got %+v, want no removed state", r)
	}
	if n.Knows(storetest.SecretVID) {
		t.Error("the node that was asked still answers for it")
	}
}

// TestTakeAfterSourcesReplaced deletes and re-creates SOURCES, so the tombstones to which cursors
// refer are lost. A node that has read the new stream must fold without waiting for records that
// will never arrive. A node that has read only the old stream, or knows that its tables are out of
// date, must fold nothing, and AwaitTombstones must return an error.
func TestTakeAfterSourcesReplaced(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow := func() (stop func()) {
		k := store.NewRecordStore(e, store.Config{}, new(access.Tables))
		caughtUp := make(chan struct{})
		stop = background(t, func(ctx context.Context) error {
			return k.RunSources(ctx, func() { close(caughtUp) })
		})
		<-caughtUp
		return stop
	}
	end := func() store.End {
		t.Helper()
		end, err := e.End(ctx, codec.Sources)
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	take := func() error {
		part, err := e.Take(ctx, 0, "test", store.Anyone)
		if err == nil {
			part.Close()
		}
		return err
	}

	stop := follow()
	old := end().Made
	if err := e.Fence(ctx, 0, 1, ""); err != nil {
		t.Fatal(err)
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	stop() // the node receives nothing more, like a node that has not noticed the new stream yet
	recreate(t, e, codec.Sources, 0)
	if err := store.LoadVIDKeys(ctx, e, &e.forgotten); err != nil {
		t.Fatal(err)
	}
	for _, in := range []int64{old, 0} { // 0: a cursor of a version without this field
		if _, err := e.changeCursor(ctx, 0, func(c *cursor) (bool, error) {
			c.Forgotten, c.ForgottenIn = 1_000_000, in
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		stop := follow()
		if err := take(); err != nil {
			t.Errorf("of a tombstone that is gone: %v", err)
		}
		now := end()
		if err := e.Fence(ctx, 0, now.Last, ""); err != nil {
			t.Fatal(err)
		}
		if c := readCursor(t, e); c.ForgottenIn != now.Made || in != 0 && c.Forgotten != now.Last {
			t.Errorf("the cursor: got %+v, want %+v of SOURCES", c, now)
		}
		if err := take(); err != nil {
			t.Errorf("of a tombstone that is there: %v", err)
		}
		if err := e.AwaitTombstones(ctx); err != nil {
			t.Errorf("waiting for the tombstones that are there: %v", err)
		}
		stop()
	}

	// This is like a node that has read the old SOURCES up to sequence 5000.
	store.NewRecordStore(e, store.Config{}, new(access.Tables))
	tombstoneFeed := e.tombstoneFeed.Load()
	tombstoneFeed.created.Store(old)
	tombstoneFeed.Advance(5000)
	if err := take(); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("a node that has not seen the tombstone takes the partition: %v", err)
	}
	if err := e.AwaitTombstones(ctx); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("waiting for tombstones of a stream that was not read: got %v, want %v", err, store.ErrReplaced)
	}
	store.NewRecordStore(e, store.Config{}, new(access.Tables)) // its feed never delivers anything
	short, cancelShort := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancelShort()
	if err := e.AwaitTombstones(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for tombstones that do not come: got %v, want %v", err, context.DeadlineExceeded)
	}
	defer follow()()
	e.fail(store.ErrReplaced)
	if err := take(); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("a node whose tables are of the past takes a partition: %v", err)
	}
	if err := e.AwaitTombstones(ctx); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("waiting for tombstones after a failure: got %v, want %v", err, store.ErrReplaced)
	}
}
