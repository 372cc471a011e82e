package local

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// TestIdle_SyncsNothing checks that an engine whose samples are folded and stored neither writes
// nor syncs a file for 20 minutes, after the retention has run.
func TestIdle_SyncsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		count := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				writes.Add(1)
			}
			return nil
		})
		ctx := t.Context()
		e, err := Open(ctx, Config{FS: errorfs.Wrap(vfs.NewMem(), count),
			DataDir: "/data", Retention: time.Minute})
		testkit.NoError(t, err)
		put(ctx, t, e, sample("v", time.Now().UnixMilli(), 50))
		p := take(ctx, t, e, 0)
		seq, samples, err := p.Next(ctx)
		testkit.NoError(t, err)
		state := vehicle.Observe(vehicle.State{}, samples[0])
		testkit.NoError(t, p.Commit(ctx, seq, storetest.Packed(map[vehicle.ID]*vehicle.State{"v": &state}), false))
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _, _, _ = p.Next(waiting) }() // as derive does
		time.Sleep(10 * time.Minute)              // of the bubble: the retention removes the sample
		synctest.Wait()
		before := writes.Load()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := writes.Load() - before; n != 0 {
			t.Errorf("the idle engine made %d writes and syncs in 20 minutes, want none", n)
		}
		if before == 0 {
			t.Error("no write was counted, not even of the sample")
		}
		cancel()
		testkit.NoError(t, e.Close())
	})
}
