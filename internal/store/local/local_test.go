package local

import (
	"context"
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

func open(t testing.TB, c Config) *Engine {
	t.Helper()
	if c.FS == nil {
		c.FS = vfs.NewMem()
	}
	if c.DataDir == "" {
		c.DataDir = "/data"
	}
	e, err := Open(context.Background(), c)
	return testkit.Opened(t, e, err)
}

// The test must close the engine.
func mustOpen(ctx context.Context, t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := Open(ctx, c)
	testkit.NoError(t, err)
	return e
}

func put(ctx context.Context, t testing.TB, e *Engine, samples ...vehicle.Sample) {
	t.Helper()
	testkit.NoError(t, e.Append(ctx, samples))
}

func take(ctx context.Context, t testing.TB, e *Engine, p int) store.Partition {
	t.Helper()
	part, err := e.Take(ctx, p, "me", storetest.Empty, store.Anyone)
	testkit.NoError(t, err)
	testkit.NoError(t, part.Seek(ctx, store.Checkpoint{}))
	return part
}

func save(ctx context.Context, t testing.TB, p store.Partition, number, seq uint64) {
	t.Helper()
	c := store.Checkpoint{Number: number, First: number, Seq: seq}
	_, err := p.Save(ctx, c, func(func(store.Piece) bool) {}, false)
	testkit.NoError(t, err)
}

func storeAll(ctx context.Context, t testing.TB, e *Engine, stream string, writes ...store.Write) {
	t.Helper()
	_, err := e.Store(ctx, stream, writes)
	testkit.NoError(t, err)
}

func record[Text string | []byte](subject string, body Text) store.Write {
	return store.Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, body...))}
}

func sample(vid string, ms int64, speed float64) vehicle.Sample {
	x := vehicle.Sample{Vehicle: vehicle.ID(vid), Time: signal.UnixMilli(ms)}
	if err := x.Set(signal.Speed, speed); err != nil {
		panic(err)
	}
	return x
}

func TestProgress_OfAStart(t *testing.T) {
	ctx, c := testkit.Context(t), Config{FS: vfs.NewMem(), DataDir: "/data"}
	e := mustOpen(ctx, t, c)
	for n := range int64(2) {
		put(ctx, t, e, sample("v", 1000*n+1000, 50))
	}
	testkit.NoError(t, e.Close())
	e = mustOpen(ctx, t, c)
	want := func(want uint64) {
		t.Helper()
		if folded, groups := e.Progress(); folded != want || groups != 2 {
			t.Errorf("got %d of %d groups, want %d of 2", folded, groups, want)
		}
	}
	want(0)
	storetest.Start(t, e, store.Config{})
	want(2)
}

// A sample is on disk after the interval, even if nothing else is stored, and not before.
func TestSyncInterval_SyncsLater(t *testing.T) {
	ctx := testkit.Context(t)
	onDisk := func(fs *vfs.MemFS) uint64 {
		e := mustOpen(ctx, t, Config{FS: fs.CrashClone(vfs.CrashCloneCfg{}), DataDir: "/data"})
		defer e.Close()
		return e.telemetryEnd()
	}
	for _, interval := range []time.Duration{time.Millisecond, time.Hour} {
		fs := vfs.NewCrashableMem()
		e := open(t, Config{FS: fs, SyncInterval: interval})
		for n := range int64(3) {
			put(ctx, t, e, sample("v", 1000*n+1000, 50))
			if interval == time.Millisecond {
				testkit.Await(t, "the sample to be on disk", func() bool { return onDisk(fs) == uint64(n)+1 })
			} else if got := onDisk(fs); got != 0 {
				t.Errorf("samples on disk before the interval has passed: got %d, want 0", got)
			}
		}
	}
}
