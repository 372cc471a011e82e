package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestTrimEmptyPartition(t *testing.T) {
	ctx := testkit.Context(t)
	clock := testkit.NewClock(time.Now())
	e := open(t, Config{Partitions: 2, Now: clock.Now, Retention: time.Hour})
	vid := ""
	for i := 0; vid == ""; i++ {
		if v := fmt.Sprintf("v%d", i); codec.PartitionOf(vehicle.ID(v), 2) == 1 {
			vid = v
		}
	}
	put(ctx, t, e, sample(vid, 1000, 50))
	save(ctx, t, take(ctx, t, e, 1), 1, 1)
	clock.Advance(10 * time.Hour)
	testkit.NoError(t, e.trim())
	if first, stored, _ := e.firstGroup(1, 0, forwards); first != 0 {
		t.Errorf("partition 1: got group %d, %s old, want none", first, clock.Now().Sub(stored))
	}
}

// Erased returns only once no file has the bytes of a replaced record, even if a scan reads them.
func TestErasedDuringScan(t *testing.T) {
	for _, scan := range []bool{false, true} {
		t.Run(fmt.Sprint("scan=", scan), func(t *testing.T) {
			ctx := testkit.Context(t)
			dir := t.TempDir()
			e := mustOpen(ctx, t, Config{DataDir: dir, plain: true})
			defer e.Close()
			storeAll(ctx, t, e, codec.Tokens, record("token.a", "grants TheSecretVID"), record("token.b", "b"))
			hold, in, out := make(chan struct{}), make(chan struct{}), make(chan struct{})
			if scan {
				go func() {
					defer close(out)
					first := true
					_ = e.Scan(ctx, codec.Tokens, []string{"token.*"}, func(store.Record) error {
						if first {
							first = false
							close(in)
							<-hold
						}
						return nil
					})
				}()
				<-in
			}
			storeAll(ctx, t, e, codec.Tokens, record("token.a", "grants nobody"))
			if scan {
				waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				if e.Erased(waiting) == nil {
					if named := filesWith(t, dir, "TheSecretVID"); len(named) > 0 {
						t.Errorf("files with the text, said to be gone: got %q, want none", named)
					}
				}
				close(hold)
				<-out
			}
			testkit.NoError(t, e.Erased(ctx))
			if named := filesWith(t, dir, "TheSecretVID"); len(named) > 0 {
				t.Errorf("files with the text: got %q, want none", named)
			}
		})
	}
}

// Open without room for tables does not speak of damage, and succeeds later.
func TestOpenWithoutRoom(t *testing.T) {
	for name, errno := range map[string]error{
		"full": syscall.ENOSPC, "descriptors": syscall.EMFILE, "input and output": syscall.EIO,
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Context(t)
			mem := vfs.NewCrashableMem()
			e := mustOpen(ctx, t, small(mem))
			for i := range 100 {
				put(ctx, t, e, sample("v", int64(1000*i+1000), 1))
			}
			clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 7))})
			_ = e.Close()
			var full atomic.Bool
			full.Store(true)
			_, err := Open(ctx, small(failing(clone, &full, errno, fillsTable)))
			if err == nil || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("Open on a full disk: got %v, want one line, and no damage", err)
			}
			// A real process would end now.
			left := clone.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 8))})
			full.Store(false)
			if e, err = Open(ctx, small(left)); err != nil {
				t.Fatalf("Open with room: got %v, want no error", err)
			}
			_ = e.Close()
		})
	}
}

// A read without a free file descriptor is no damage, and does not end the engine.
func TestNoDescriptors(t *testing.T) {
	ctx := testkit.Context(t)
	var none atomic.Bool
	opens := func(op errorfs.Op) bool { return op.Kind == errorfs.OpOpen }
	fs := failing(vfs.NewMem(), &none, syscall.EMFILE, opens)
	e := mustOpen(ctx, t, small(fs))
	put(ctx, t, e, sample("v", 1000, 1))
	none.Store(true)
	testkit.NoError(t, e.db.Flush())
	if _, err := e.Recent(ctx, "v", 10); err == nil || strings.Contains(err.Error(), "damaged") || e.Alive() != nil {
		t.Errorf("Recent: got %v, want an error, and no damage; Alive: got %v, want nil", err, e.Alive())
	}
	none.Store(false)
	_ = e.Close()
	e = mustOpen(ctx, t, small(fs))
	_ = e.Close()
	if _, err := e.Last(ctx, codec.States, "state.0.v"); err == nil {
		t.Error("Last after the end: got no error, want one")
	}
}
