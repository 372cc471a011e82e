package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/durable"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func firstSeed(t *testing.T) uint64 {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed %d", first)
	return first
}

func fills(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate, errorfs.OpMkdirAll,
		errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpLink, errorfs.OpRename:
		return true
	}
	return false
}

func fillsTable(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && fills(op) }

func failing(fs vfs.FS, on *atomic.Bool, err error, matches func(errorfs.Op) bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && matches(op) {
			return err
		}
		return nil
	}))
}

// Wherever the disk becomes full, the next start finds all that was acknowledged, and the engine
// neither hangs nor ends the process.
func fillDisks(t *testing.T, wanted int) {
	t.Parallel()
	ctx := testkit.Context(t)
	first := firstSeed(t)
	var folds [2]*[workVehicles][]vehicle.State
	var writes [2]int64
	for i := range folds {
		folds[i] = allFolds(first + uint64(i))
		n, _, err := fillDisk(ctx, first+uint64(i), math.MaxInt64, folds[i])
		if err != nil {
			t.Fatalf("-seed %d: %v", first, err)
		}
		writes[i] = n
	}
	r := rand.New(rand.NewPCG(first, 5))
	filled, rounds := 0, 0
	for ; filled < wanted; rounds++ {
		i := rounds / 2 % 2
		n := int64(1 + rounds)
		// Every second round takes a random write, mostly a later one, where tables are written.
		// Another run may have fewer writes, hence the fraction.
		if last := writes[i] * 8 / 10; rounds%2 == 1 || n > last {
			n = 1 + r.Int64N(last)
		}
		_, full, err := fillDisk(ctx, first+uint64(i), n, folds[i])
		if err != nil {
			t.Fatalf("-seed %d: the disk was full at write %d: %v", first, n, err)
		}
		if full {
			filled++
		}
		if unfilled := rounds + 1 - filled; unfilled > 1+wanted/10 {
			t.Fatalf("-seed %d: %d of %d rounds filled the disk, want at least 90 %%", first, filled, rounds+1)
		}
	}
	t.Logf("done %d full disks", filled)
}

// fillDisk lets write number at and all later ones fail, every second time but for those that the
// reserve has room for, until the workload has ended or waits.
// Then it makes room, closes the engine, crashes, with unsynced data if at is odd, and checks the
// data. An error also says that the workload hangs, or that Writable hides that nothing is stored.
func fillDisk(
	ctx context.Context, seed uint64, at int64, folds *[workVehicles][]vehicle.State,
) (writes int64, full bool, err error) {
	mem := vfs.NewCrashableMem()
	w := &workload{seed: seed}
	var count atomic.Int64
	var freed freedWrites
	var room, refused atomic.Bool // room: there is space again
	if at/2%2 == 1 {
		freeBytes(mem, 1<<30)
	}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !freed.fails(op, fills(op) && count.Add(1) >= at && !room.Load()) {
			return nil
		}
		refused.Store(true)
		return syscall.ENOSPC
	}))
	err = w.open(ctx, fs)
	if err == nil {
		working, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- w.run(working) }()
		limit, stalled := time.After(30*time.Second), time.NewTicker(2*time.Second)
		defer stalled.Stop()
	working:
		for {
			select {
			case err = <-ended:
				break working
			case <-w.e.writesFailed.Done():
				if w.e.Writable() == nil {
					return 0, true, fmt.Errorf("it stores nothing and does not say so")
				}
				stop()
				select {
				case <-ended:
				case <-time.After(100 * time.Millisecond):
				}
				break working
			case <-stalled.C:
				// While only tables cannot be written, or the reserve is used, writers wait for room.
				if err := w.e.Writable(); errors.Is(err, errTablesFailing) || errors.Is(err, store.ErrScarce) {
					room.Store(true)
				}
			case <-limit:
				return 0, true, fmt.Errorf("the workload hangs")
			}
		}
	}
	if err != nil && !refused.Load() {
		return 0, false, err
	}
	p := w.promised()
	room.Store(true)
	if w.e != nil {
		_ = w.e.Close()
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: 100 * int(at%2), RNG: rand.New(rand.NewPCG(seed, 6)),
	})
	p.sent = w.promised().sent
	_, err = check(ctx, left, seed, folds, p)
	return count.Load(), refused.Load(), err
}

// An engine that met a full disk fails, but only once the disk accepts writes again.
func TestFailsOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	var full atomic.Bool
	e := mustOpen(ctx, t, small(failing(vfs.NewMem(), &full, syscall.ENOSPC, fills)))
	defer e.Close()
	full.Store(true)
	for e.Append(ctx, []vehicle.Sample{sample("v", 1000, 1)}) == nil {
	}
	if e.Writable() == nil || e.Alive() != nil {
		t.Fatalf("writable: %v, alive: %v", e.Writable(), e.Alive())
	}
	if err := e.Append(ctx, []vehicle.Sample{sample("v", 1000, 1)}); err == nil {
		t.Fatal("it stores after a write error")
	}
	full.Store(false)
	select {
	case err := <-e.Failed():
		if !strings.Contains(err.Error(), "restart carstate") {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("it does not fail")
	}
}

// An engine that can write its log but no tables says so, and continues once there is room.
func TestEngine_RoomForLogOnly(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	var full atomic.Bool
	mem := vfs.NewCrashableMem()
	fs := failing(mem, &full, syscall.ENOSPC, fillsTable)
	e := mustOpen(ctx, t, small(fs))
	acked := 0
	put := func(wait time.Duration) error {
		batch := make([]vehicle.Sample, 100)
		for i := range batch {
			batch[i] = sample("v", int64(1000*(acked+i+1)), 50)
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err := e.Append(waiting, batch)
		if err == nil {
			acked += len(batch)
		}
		return err
	}
	holds := func(when string) {
		t.Helper()
		if found, err := e.Recent(ctx, "v", math.MaxInt); err != nil || len(found.Samples) < acked {
			t.Errorf("samples %s: got %d, %v, want at least %d", when, len(found.Samples), err, acked)
		}
	}
	full.Store(true)
	for put(time.Second) == nil {
	}
	if err := e.Writable(); !errors.Is(err, errTablesFailing) || e.Alive() != nil {
		t.Errorf("Writable: got %v, want %v; Alive: got %v, want nil", err, errTablesFailing, e.Alive())
	}
	holds("without room")
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	logs := slices.DeleteFunc(filesOf(t, killed), func(name string) bool { return !strings.HasSuffix(name, ".log") })
	testkit.NoError(t, killed.Remove(logs[0]))
	if _, err := Open(ctx, small(killed)); err == nil || !strings.Contains(err.Error(), "a log of the store is missing") {
		t.Errorf("Open without %s of %q: got %v, want that it is missing", logs[0], logs, err)
	}
	full.Store(false)
	testkit.Await(t, "the engine is writable", func() bool { return e.Writable() == nil })
	if err := put(testkit.Patience); err != nil {
		t.Errorf("Append with room: got %v, want nil", err)
	}
	holds("with room")
	select {
	case err := <-e.Failed():
		t.Errorf("Failed: got %v, want nothing", err)
	default:
	}
	testkit.NoError(t, e.Close())
	e = open(t, small(fs))
	holds("after a restart")
}

// Each file of a stopped and of a killed engine is removed, cut off and changed. The damage is
// reported, or all promised data is there. A tenth must be reported, and some be mended.
func damage(t *testing.T, n int) {
	t.Parallel()
	ctx := testkit.Context(t)
	done, refused, mended := 0, 0, 0
	for s := firstSeed(t); done < n; s++ {
		folds, mem, w := allFolds(s), vfs.NewCrashableMem(), &workload{seed: s}
		testkit.NoError(t, w.open(ctx, mem))
		if err := w.run(ctx); err != nil {
			t.Fatalf("-seed %d: the workload: %v", s, err)
		}
		r := rand.New(rand.NewPCG(s, 7))
		all := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: r}
		killed := mem.CrashClone(all)
		testkit.NoError(t, w.e.Close())
		promised := w.promised()
		for _, from := range []*vfs.MemFS{mem, killed} {
			for _, name := range filesOf(t, from) {
				for _, how := range damagesOf(r) {
					fs := from.CrashClone(all)
					what := how(t, fs, name)
					log, err := check(ctx, fs, s, folds, promised)
					switch done++; {
					case err == nil && (strings.Contains(log, "is damaged") || strings.Contains(log, "from its copy")):
						mended++
					case err == nil:
					case strings.Contains(err.Error(), "damaged") && strings.Contains(err.Error(), "restore a backup"),
						strings.Contains(err.Error(), "an older carstate"), strings.Contains(err.Error(), "a newer carstate"),
						strings.Contains(err.Error(), "not carstate's"):
						refused++
					default:
						t.Errorf("-seed %d: killed: %t: %s: %v", s, from == killed, what, err)
					}
				}
			}
		}
	}
	if refused < done/10 || mended == 0 {
		t.Errorf("of %d damages %d were found, want at least %d; %d were mended, want some", done, refused, done/10, mended)
	}
	t.Logf("done %d damages: %d refused, %d mended, %d harmless", done, refused, mended, done-refused-mended)
}

func filesOf(t *testing.T, fs *vfs.MemFS) (paths []string) {
	t.Helper()
	for _, dir := range []string{"/data", "/data/store"} {
		names, err := fs.List(dir)
		testkit.NoError(t, err)
		for _, name := range names {
			if name != lockFile && name != "LOCK" && name != storeDir {
				paths = append(paths, fs.PathJoin(dir, name))
			}
		}
	}
	slices.Sort(paths)
	return paths
}

func damagesOf(r *rand.Rand) (all []func(t *testing.T, fs *vfs.MemFS, name string) string) {
	all = append(all, func(t *testing.T, fs *vfs.MemFS, name string) string {
		testkit.NoError(t, fs.Remove(name))
		return name + " is removed"
	}, func(t *testing.T, fs *vfs.MemFS, name string) (what string) {
		rewrite(t, fs, name, func(b []byte) []byte {
			if len(b) == 0 {
				return b
			}
			size := r.IntN(len(b))
			what = fmt.Sprintf("%s of %d bytes has %d", name, len(b), size)
			return b[:size]
		})
		return what
	})
	for range 6 {
		all = append(all, func(t *testing.T, fs *vfs.MemFS, name string) (what string) {
			rewrite(t, fs, name, func(b []byte) []byte {
				if len(b) > 0 {
					at := r.IntN(len(b))
					b[at] ^= byte(1 + r.IntN(255))
					what = fmt.Sprintf("byte %d of %s of %d bytes is changed", at, name, len(b))
				}
				return b
			})
			return what
		})
	}
	return all
}

func rewrite(t *testing.T, fs *vfs.MemFS, name string, change func([]byte) []byte) {
	t.Helper()
	content, err := durable.ReadFile(fs, name)
	testkit.NoError(t, err)
	testkit.NoError(t, durable.WriteFile(fs, name, change(bytes.Clone(content))))
}

// flip changes a bit of the largest file with the suffix, and returns all contents after that.
func flip(t *testing.T, fs *vfs.MemFS, suffix string, at float64) map[string]string {
	t.Helper()
	files := contents(t, fs, "/data/store")
	largest := ""
	for name, content := range files {
		if strings.HasSuffix(name, suffix) && (largest == "" || len(content) > len(files[largest])) {
			largest = name
		}
	}
	content := []byte(files[largest])
	content[int(at*float64(len(content)))] ^= 4
	files[largest] = string(content) // before writing, because writeFile may change content
	testkit.NoError(t, durable.WriteFile(fs, fs.PathJoin("/data/store", largest), content))
	return files
}

func contents(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	names, err := fs.List(dir)
	testkit.NoError(t, err)
	files := make(map[string]string)
	for _, name := range names {
		content, err := durable.ReadFile(fs, fs.PathJoin(dir, name))
		testkit.NoError(t, err)
		files[name] = string(content)
	}
	return files
}

// A file that could not be removed is removed later. Until then, nothing counts as erased.
func TestErased_FileNotRemoved(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{".sst", ".log"} {
		ctx, mem, stuck := testkit.Context(t), vfs.NewMem(), new(atomic.Bool)
		e := open(t, small(failing(mem, stuck, syscall.EIO, func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpRemove && strings.HasSuffix(op.Path, suffix)
		})))
		stuck.Store(true)
		for range 2 {
			storeAll(ctx, t, e, codec.Tokens, record("token.1", "1"))
			testkit.NoError(t, e.db.Flush())
		}
		if err := e.Erased(ctx); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: Erased: got %v, want %v", suffix, err, syscall.EIO)
		}
		stuck.Store(false)
		if err := e.Erased(ctx); err != nil {
			t.Errorf("%s: Erased, once files can be removed: got %v, want nil", suffix, err)
		}
		files := filesOf(t, mem)
		is := func(suffix string) (n int64) {
			for _, name := range files {
				if strings.HasSuffix(name, suffix) {
					n++
				}
			}
			return n
		}
		if m := e.db.Metrics(); is(".sst") != m.Total().TablesCount || is(".log") != 1 {
			t.Errorf("%s: got %q after Erased, want %d tables and a log", suffix, files, m.Total().TablesCount)
		}
	}
}

// No listed log is missing after a kill, whichever write of the list failed before.
func TestLogs_ListNotWritten(t *testing.T) {
	t.Parallel()
	ctx, missed := testkit.Context(t), int64(0)
	for n := range int64(6) {
		mem := vfs.NewCrashableMem()
		var counting atomic.Bool
		var writes atomic.Int64
		e := mustOpen(ctx, t, small(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			written := op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, identityFile+durable.Unfinished)
			if counting.Load() && written && writes.Add(1) == n {
				return syscall.EIO
			}
			return nil
		}))))
		storeAll(ctx, t, e, codec.Tokens, record("token.1", "1"))
		counting.Store(true)
		_ = e.unblocked(ctx, e.db.Flush)
		testkit.Await(t, "the old log is removed, or nothing is", func() bool {
			logs := slices.DeleteFunc(filesOf(t, mem), func(name string) bool { return !isLog(name) })
			return e.removeAgain() == nil && len(logs) == 1 || e.Writable() != nil
		})
		testkit.NoError(t, durable.SyncDir(mem, "/data/store"))
		killed, err := Open(ctx, small(mem.CrashClone(vfs.CrashCloneCfg{})))
		if err != nil {
			t.Errorf("Open after write %d of the list failed: got %v, want no error", n, err)
		} else {
			testkit.NoError(t, killed.Close())
		}
		missed = max(missed, writes.Load())
		_ = e.Close()
	}
	if missed < 3 {
		t.Errorf("the list: got %d writes, want at least 3: of a new log, the manifest, and an old log", missed)
	}
}

// The last record before the damaged block, and all after it, are removed, and then are no damage.
func TestRoadsDamage(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	fs := vfs.NewMem()
	config := Config{FS: fs, DataDir: "/data"}
	e := mustOpen(ctx, t, config)
	const tiles = 900
	var writes []store.Write
	r := rand.New(rand.NewPCG(1, 2))
	for i := range tiles {
		var body []byte
		for range 40 {
			body = binary.LittleEndian.AppendUint64(body, r.Uint64())
		}
		writes = append(writes, record(fmt.Sprintf("road.%d", i), body))
	}
	storeAll(ctx, t, e, codec.Roads, writes...)
	testkit.NoError(t, e.Close())
	flip(t, fs, ".sst", 0.5)
	e = mustOpen(ctx, t, config)
	defer e.Close()
	scan := func() (found, damaged int) {
		t.Helper()
		next, damaged, err := e.ScanFrom(ctx, codec.Roads, 1, func(store.Record) error { found++; return nil })
		if err != nil || next != tiles+1 {
			t.Fatalf("ScanFrom: up to %d, %v", next, err)
		}
		return found, damaged
	}
	found, damaged := scan()
	if found < tiles/4 || found >= tiles || damaged != 1 {
		t.Errorf("%d of %d tiles were read, %d parts damaged", found, tiles, damaged)
	}
	if again, damaged := scan(); again != found-1 || damaged != 0 {
		t.Errorf("then %d tiles were read, %d parts damaged", again, damaged)
	}
	testkit.NoError(t, errors.Join(e.Alive(), e.Close()))
	e = mustOpen(ctx, t, config)
	if again, damaged := scan(); again != found-1 || damaged != 0 {
		t.Errorf("after a start %d tiles were read, %d parts damaged", again, damaged)
	}
}

// freedWrites counts the writes that fit into removed parts of the reserve.
type freedWrites struct{ left atomic.Int64 }

const partWrites = 200

func (f *freedWrites) fails(op errorfs.Op, full bool) bool {
	if op.Kind == errorfs.OpRemove && strings.Contains(op.Path, reserveDir) {
		f.left.Add(partWrites)
	}
	return full && fills(op) && f.left.Add(-1) < 0 && f.left.Add(1) <= 0
}

func freeBytes(fs *vfs.MemFS, free uint64) {
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 128 << 20})
}

// A nearly full disk takes neither telemetry nor changes, except those that take rights away; nor
// does a full one.
func TestLastRoomIsReserved(t *testing.T) {
	testkit.Slow(t, "it writes until the reserve is in use")
	t.Parallel()
	ctx, mem := testkit.Context(t), vfs.NewMem()
	const parts, reserved = 4, 4 * partBytes
	freeBytes(mem, 10*reserved)
	var full atomic.Bool
	var freed freedWrites
	e := open(t, Config{FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if freed.fails(op, full.Load()) {
			return syscall.ENOSPC
		}
		return nil
	}))})
	k := store.NewRecordStore(e, store.Config{}, new(access.Tables))
	accepts := func() bool { return e.Append(ctx, []vehicle.Sample{sample("V1", 1, 50)}) == nil }
	refuses := func() bool {
		return errors.Is(e.Append(ctx, []vehicle.Sample{sample("V1", 1, 50)}), store.ErrBacklog) && e.Writable() != nil
	}
	held := func() int {
		files, _ := mem.List("/data/" + reserveDir)
		return len(files)
	}
	testkit.Await(t, "the room is held", func() bool { return accepts() && held() == parts })
	freeBytes(mem, reserved-1)
	testkit.Await(t, "telemetry is refused", refuses)
	for _, tt := range []struct {
		event access.Event
		ok    bool
	}{
		{access.Event{Actor: "ada", Action: "token.issue"}, false},
		{access.Event{Actor: "ada", Action: "node.change"}, false},
		{access.Event{Actor: "ada", Action: "token.revoke"}, true},
		{access.Event{Actor: "ada", Action: "source.remove"}, true},
		{access.Event{Actor: "ada", Action: "vehicle.forget"}, true},
		{access.Event{Actor: "ada", Action: "backup.take"}, true},
		{access.Event{Actor: "admin", Admin: true, Action: "token.issue"}, true},
	} {
		if err := k.Audit(ctx, tt.event); (err == nil) != tt.ok {
			t.Errorf("%s of %s: got error %v, want success %v", tt.event.Action, tt.event.Actor, err, tt.ok)
		}
	}
	freeBytes(mem, 2*reserved)
	testkit.Await(t, "telemetry is accepted", accepts)
	full.Store(true)
	freeBytes(mem, 1)
	for range 2 * partWrites / 10 {
		testkit.NoError(t, k.Audit(ctx, access.Event{Actor: "ada", Action: "token.revoke"}))
	}
	if held() == parts || !refuses() {
		t.Errorf("%d parts are held, telemetry is refused: %v", held(), refuses())
	}
	full.Store(false)
	freeBytes(mem, 10*reserved)
	testkit.Await(t, "telemetry is accepted, and room held", func() bool { return accepts() && held() == parts })
}
