package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// No state is lost if a service starts again after every few checkpoints, none of which has all.
func TestCheckpoints_AcrossRestarts(t *testing.T) {
	ctx, c := testkit.Context(t), Config{FS: vfs.NewMem(), DataDir: "/data"}
	const vehicles, starts = 6000, 24
	for start := range starts {
		e := mustOpen(ctx, t, c)
		folding, stop := context.WithCancel(ctx)
		end := func() uint64 {
			is, err := e.Ends(ctx, codec.States)
			testkit.NoError(t, err)
			return is[0]
		}
		var found atomic.Int64
		ready, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			deriver(e, time.Millisecond, nil).Run(folding)
		}()
		go e.FollowAnswers(folding, func(vehicle.ID, *store.Answer) { found.Add(1) }, func() { close(ready) })
		<-ready
		if start > 0 && found.Load() != vehicles {
			t.Fatalf("start %d: got %d vehicles, want %d", start, found.Load(), vehicles)
		}
		var batch []vehicle.Sample
		for i := range vehicles {
			batch = append(batch, sample(fmt.Sprintf("v%d", i), 1000, 50))
		}
		if start > 0 {
			batch = batch[:1]
		}
		for k := range int64(3) {
			batch[0].Time = signal.UnixMilli(1000 * (3*int64(start) + k + 1))
			was := end()
			put(ctx, t, e, slices.Clone(batch)...)
			testkit.Await(t, "a checkpoint", func() bool { return end() >= was+2 })
			batch = batch[:1]
		}
		stop()
		<-ended
		testkit.NoError(t, e.Close())
	}
}

// If states were restored, telemetry alone cannot replace damaged checkpoints.
func TestCheckpoints_OfRestoredStates(t *testing.T) {
	ctx, c := testkit.Context(t), Config{FS: vfs.NewMem(), DataDir: "/data"}
	e := mustOpen(ctx, t, c)
	n := storetest.Start(t, e, store.Config{})
	s := vehicle.Observe(vehicle.State{}, sample("v", 1000, 50))
	entry := store.AppendEntry(nil, store.Entry{Vehicle: "v", State: codec.AppendState(nil, &s)})
	_, err := n.Ask(ctx, 0, &store.Question{Kind: store.AskRestore, Entries: entry})
	testkit.NoError(t, err)
	r, err := n.Ask(ctx, 0, &store.Question{Kind: store.AskErase})
	testkit.NoError(t, err)
	storeAll(ctx, t, e, codec.States, record(r.Checkpoint.Subject(0, 0), "not a piece"))
	n.Stop()
	e = open(t, c)
	folding, stop := context.WithCancel(ctx)
	defer stop()
	go deriver(e, time.Hour, nil).Run(folding)
	select {
	case err = <-e.Failed():
		if !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("got %v, want an error of damage", err)
		}
	case <-ctx.Done():
		t.Error("the failure: got none until the deadline, want one of damage")
	}
}

// An owner that closes while it answers is none, so that the next one is asked.
func TestAsk_ClosedOwner(t *testing.T) {
	ctx, e := testkit.Context(t), open(t, Config{})
	var p store.Partition
	p, err := e.Take(ctx, 0, "me", func(ctx context.Context, _ *store.Question) (store.Reply, error) {
		p.Close()
		_, err := p.Save(ctx, store.Checkpoint{}, nil, false)
		return store.Reply{}, err
	}, store.Anyone)
	testkit.NoError(t, err)
	if _, err := e.Ask(ctx, 0, &store.Question{Kind: store.AskErase}); !errors.Is(err, store.ErrNoOwner) {
		t.Errorf("got %v, want %v", err, store.ErrNoOwner)
	}
}
