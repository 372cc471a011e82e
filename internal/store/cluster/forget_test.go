package cluster

import (
	"context"
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

func TestForgetOnEveryNode(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	url := clustertest.Account(t)
	clock := testkit.NewClock(time.Now())
	b := startNode(t, Config{Partitions: 4, Streams: 4, URLs: url, Now: clock.Now}) // owns all partitions
	a := startNode(t, Config{URLs: url, Now: clock.Now})
	p := codec.PartitionOf(storetest.SecretVID, 4)
	a.GrantAll(t)
	a.Put(t, storetest.Speed(storetest.SecretVID, 1000, 50), storetest.Speed("Other1", 1000, 50))
	known := func(want bool, grants int) func() bool {
		return func() bool {
			tokens, sources := b.Grants()
			return a.Knows(storetest.SecretVID) == want && b.Knows(storetest.SecretVID) == want &&
				b.Forgotten().Has(storetest.SecretVID) != want && tokens == grants && sources == grants
		}
	}
	testkit.Await(t, "both know the vehicle", known(true, 3))
	for at := range int64(20) {
		a.Put(t, storetest.Speed(storetest.SecretVID, 2000+at, 50))
	}
	r := a.MustForget(t, storetest.SecretVID)
	if want := (access.RemovedCount{States: 1, TokenGrants: 3, SourceGrants: 3}); r.Removed != want || r.ErasedBy != nil {
		t.Errorf("the receipt: got %+v, want %+v and no time", r, want)
	}
	b.FoldAll(t, p)
	if _, ok := a.StateOf(t, storetest.SecretVID); ok {
		t.Error("the state after samples that waited: got one, want none")
	}
	testkit.Await(t, "both nodes have forgotten it", known(false, 0))
	b.Put(t, storetest.Speed(storetest.SecretVID, 4000, 50)) // accepted before
	if _, err := a.Allow(t.Context(), storetest.SecretVID); !errors.Is(err, access.ErrNotErased) {
		t.Errorf("Allow before it is erased: got %v, want %v", err, access.ErrNotErased)
	}
	a.Erase(t, clock)
	// Another node takes the partition while the vehicle is allowed.
	leaving := make(chan struct{})
	go func() {
		defer close(leaving)
		b.Leave()
	}()
	a.MustAllow(t, storetest.SecretVID)
	testkit.Await(t, "the other node takes it in", func() bool { return !b.Forgotten().Has(storetest.SecretVID) })
	b.Put(t, storetest.Speed(storetest.SecretVID, 5000, 50))
	<-leaving
	a.FoldAll(t, p)
	s, ok := a.StateOf(t, storetest.SecretVID)
	want := vehicle.Observe(vehicle.State{}, storetest.Speed(storetest.SecretVID, 5000, 50))
	if !ok || s.Time != want.Time || s.Traffic != want.Traffic {
		t.Errorf("the state after a fresh start: got %t, %+v; want true, %+v", ok, s, want)
	}
	testkit.Await(t, "both know it again", known(true, 0))
}

// After SOURCES was created again, only a node that has read it may take partitions.
func TestTakeAfterSourcesReplaced(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow := func() (stop func()) {
		k := store.NewRecordStore(e, store.Config{}, new(access.Tables))
		caughtUp := make(chan struct{})
		stop = background(t, func(ctx context.Context) error {
			return k.Sources.Run(ctx, func() { close(caughtUp) })
		})
		<-caughtUp
		return stop
	}
	take := func() error {
		part, err := e.Take(ctx, 0, "test", storetest.Empty, store.Anyone)
		if err == nil {
			part.Close()
		}
		return err
	}
	stop := follow()
	was, err := e.js.Stream(ctx, codec.Sources)
	testkit.NoError(t, err)
	old := was.CachedInfo().Created.UnixNano()
	testkit.NoError(t, take())
	stop() // like a node that has not noticed the new stream yet
	recreate(t, e, codec.Sources, 0)
	testkit.NoError(t, store.LoadVIDKeys(ctx, e, &e.forgotten))
	stop = follow()
	testkit.NoError(t, take())
	stop()

	// like a node that has read the old SOURCES up to sequence 5000
	store.NewRecordStore(e, store.Config{}, new(access.Tables))
	tombstoneFeed := e.tombstoneFeed.Load()
	tombstoneFeed.created.Store(old)
	tombstoneFeed.Advance(5000)
	if err := take(); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("Take by a node that has not seen the tombstone: got %v, want %v", err, store.ErrReplaced)
	}
	if err := e.AwaitTombstones(ctx); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("waiting for tombstones of a stream that was not read: got %v, want %v", err, store.ErrReplaced)
	}
	store.NewRecordStore(e, store.Config{}, new(access.Tables))
	short, cancelShort := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancelShort()
	if err := e.AwaitTombstones(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for tombstones that do not come: got %v, want %v", err, context.DeadlineExceeded)
	}
	defer follow()()
	e.fail(store.ErrReplaced)
	if err := take(); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("Take by a node whose tables are of the past: got %v, want %v", err, store.ErrReplaced)
	}
	if err := e.AwaitTombstones(ctx); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("waiting for tombstones after a failure: got %v, want %v", err, store.ErrReplaced)
	}
}
