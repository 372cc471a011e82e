package local

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// TestTrimEmptyPartition trims a partition whatever the others hold.
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
	if err := e.Append(ctx, []vehicle.Sample{sample(vid, 1000, 50)}); err != nil {
		t.Fatal(err)
	}
	p, err := e.Take(ctx, 1, "me", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	seq, _, err := p.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(ctx, seq, nil); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10 * time.Hour)
	if err := e.trim(); err != nil {
		t.Fatal(err)
	}
	if first, stored, _ := e.firstGroup(1, 0); first != 0 {
		t.Errorf("partition 1 still holds group %d, %s old", first, clock.Now().Sub(stored))
	}
}

// follow follows the state of one vehicle, and returns the event time of its answer.
func follow(ctx context.Context, e *Engine) *atomic.Int64 {
	var at atomic.Int64
	following := make(chan struct{})
	go e.FollowStates(ctx, func(_ vehicle.ID, s vehicle.State) { at.Store(int64(s.Time)) }, func() { close(following) })
	<-following
	return &at
}

// restoreState stores a state of the vehicle v as a restore does where none is.
func restoreState(ctx context.Context, t *testing.T, e *Engine, ms int64) {
	t.Helper()
	s := vehicle.Observe(vehicle.State{}, sample("v", ms, 10))
	subject := codec.StateSubject(0, "v")
	if _, err := e.Store(ctx, codec.States, []store.Write{{Subject: subject, Record: codec.Seal(subject, codec.AppendState([]byte{0}, &s)), Expect: 0, Expected: true}}); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreBehindAnswer restores a state that is older than an answer whose state was not
// stored yet. The answer is that of the stored state in the end.
func TestRestoreBehindAnswer(t *testing.T) {
	for _, fence := range []bool{false, true} {
		t.Run(fmt.Sprint("fence=", fence), func(t *testing.T) {
			ctx := testkit.Context(t)
			e := open(t, Config{})
			at := follow(ctx, e)
			if err := e.Append(ctx, []vehicle.Sample{sample("v", 3000, 50)}); err != nil {
				t.Fatal(err)
			}
			fold := func() store.Partition {
				p, err := e.Take(ctx, 0, "me", store.Anyone)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			step := func(p store.Partition) (uint64, vehicle.State) {
				seq, xs, err := p.Next(ctx)
				if err != nil || len(xs) != 1 {
					t.Fatal(xs, err)
				}
				var s vehicle.State
				if err := p.Load(ctx, []vehicle.ID{"v"}, func(_ int, x vehicle.State) { s = x }); err != nil {
					t.Fatal(err)
				}
				s = vehicle.Observe(s, xs[0])
				p.Answer("v", &s)
				return seq, s
			}
			p := fold()
			seq, s := step(p)
			if at.Load() != 3000 {
				t.Fatal(at.Load())
			}
			idle, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			_, _, _ = p.Next(idle) // as derive does until the checkpoint is due
			cancel()
			restoreState(ctx, t, e, 2000) // what store.restore does: CAS on what is stored
			if fence {
				if err := e.Fence(ctx, 0, 0); err != nil {
					t.Fatal(err)
				}
				p.Close()
				p = fold()
				seq, s = step(p)
			}
			committed := map[vehicle.ID]*vehicle.State{"v": &s}
			if err := p.Commit(ctx, seq, committed); err != nil {
				t.Fatal(err)
			}
			p.Refresh(maps.All(committed)) // as derive does
			r, err := e.Last(ctx, codec.States, codec.StateSubject(0, "v"))
			if err != nil {
				t.Fatal(err)
			}
			stored, err := codec.DecodeState(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			if at.Load() != int64(stored.Time) {
				t.Errorf("the answer is of %d, was of 3000, and the stored state is of %d", at.Load(), stored.Time)
			}
		})
	}
}

// TestErasedDuringScan erases while somebody reads slowly: the bytes are gone when Erased
// says so.
func TestErasedDuringScan(t *testing.T) {
	for _, scan := range []bool{false, true} {
		t.Run(fmt.Sprint("scan=", scan), func(t *testing.T) {
			ctx := testkit.Context(t)
			dir := t.TempDir()
			e, err := Open(ctx, Config{DataDir: dir, plain: true})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			put := func(subject, text string) {
				if _, err := e.Store(ctx, codec.Tokens, []store.Write{{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, text...))}}); err != nil {
					t.Fatal(err)
				}
			}
			put("token.a", "grants TheSecretVID")
			put("token.b", "b")
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
			put("token.a", "grants nobody")
			if scan {
				waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				if e.Erased(waiting) == nil { // no file was read
					if named := filesWith(t, dir, "TheSecretVID"); len(named) > 0 {
						t.Errorf("the bytes are said to be gone, and these files hold them: %q", named)
					}
				}
				close(hold)
				<-out
			}
			if err := e.Erased(ctx); err != nil {
				t.Fatal(err)
			}
			if named := filesWith(t, dir, "TheSecretVID"); len(named) > 0 {
				t.Errorf("these files still hold the text: %q", named)
			}
		})
	}
}

// TestOpenWithoutRoom opens a store whose tables cannot be written. It says why in one line,
// not that the store is damaged, and opens once they can.
func TestOpenWithoutRoom(t *testing.T) {
	for name, errno := range map[string]error{"full": syscall.ENOSPC, "descriptors": syscall.EMFILE, "input and output": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Context(t)
			mem := vfs.NewCrashableMem()
			e, err := Open(ctx, small(mem))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				if err := e.Append(ctx, []vehicle.Sample{sample("v", int64(1000*i+1000), 1)}); err != nil {
					t.Fatal(err)
				}
			}
			clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 7))})
			_ = e.Close()
			var full atomic.Bool
			full.Store(true)
			fs := errorfs.Wrap(clone, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && strings.HasSuffix(op.Path, ".sst") && fills(op) {
					return errno
				}
				return nil
			}))
			_, err = Open(ctx, small(fs))
			if err == nil || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("it says: %v", err)
			}
			// The process would end now. The next one finds the files as they are.
			left := clone.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 8))})
			full.Store(false)
			if e, err = Open(ctx, small(left)); err != nil {
				t.Fatal("with room: ", err)
			}
			_ = e.Close()
		})
	}
}

// TestNoDescriptors reads without a descriptor left: that is no damage.
func TestNoDescriptors(t *testing.T) {
	ctx := testkit.Context(t)
	var none atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if none.Load() && op.Kind == errorfs.OpOpen {
			return syscall.EMFILE
		}
		return nil
	}))
	e, err := Open(ctx, small(fs))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Append(ctx, []vehicle.Sample{sample("v", 1000, 1)}); err != nil {
		t.Fatal(err)
	}
	none.Store(true)
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err = e.Recent(ctx, "v", 10); err == nil || strings.Contains(err.Error(), "damaged") || e.Alive() != nil {
		t.Errorf("Recent: %v; alive: %v", err, e.Alive())
	}
	none.Store(false)
	_ = e.Close()
	e, err = Open(ctx, small(fs))
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Close()
	if _, err := e.Last(ctx, codec.States, "state.0.v"); err == nil {
		t.Error("it reads after its end")
	}
}
