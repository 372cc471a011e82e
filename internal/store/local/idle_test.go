package local

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

// An engine whose samples are folded and stored neither writes nor syncs.
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
		disk := vfs.NewMem()
		freeBytes(disk, 1<<30)
		e, err := Open(ctx, Config{FS: errorfs.Wrap(disk, count), DataDir: "/data", Retention: time.Minute})
		testkit.NoError(t, err)
		n := storetest.Start(t, e, store.Config{})
		n.Put(t, sample("v", time.Now().UnixMilli(), 50))
		go e.Trim(ctx)
		time.Sleep(10 * time.Minute) // of the bubble: the retention removes the sample
		synctest.Wait()
		before := writes.Load()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := writes.Load() - before; n != 0 {
			t.Errorf("the idle engine made %d writes and syncs in 20 minutes, want none", n)
		}
		if before == 0 {
			t.Error("writes of the sample: got 0, want some")
		}
		if recent, err := e.Recent(ctx, "v", 1); err != nil || len(recent.Samples) != 0 {
			t.Errorf("after the retention: got %d samples, %v; want none", len(recent.Samples), err)
		}
	})
}

// Continuous telemetry makes Pebble flush several times a minute.
func TestAuditTables_Merge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		e := mustOpen(t.Context(), t, Config{FS: fs, DataDir: "/data"})
		n := storetest.Start(t, e, store.Config{})
		go e.Trim(t.Context())
		for range 8 * auditTable {
			testkit.NoError(t, n.Audit(t.Context(), access.Event{Action: "token.issue"}))
			testkit.NoError(t, e.db.Flush())
			time.Sleep(time.Second)
		}
		time.Sleep(2 * trimEvery)
		files, err := fs.List("/data/" + storeDir)
		testkit.NoError(t, err)
		if n := strings.Count(strings.Join(files, " "), ".sst"); n > auditTable {
			t.Errorf("got %d tables, want at most %d", n, auditTable)
		}
	})
}
