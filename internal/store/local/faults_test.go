package local

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
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
	"example.org/carstate/internal/store/local/wal"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var (
	fullWrites = flag.Int("fullwrites", 150, "writes at which TestDiskFull fills the disk")
	damages    = flag.Int("damages", 1500, "damages of TestDamage")
)

func firstSeed(t *testing.T) uint64 {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed %d", first)
	return first
}

// fills reports whether a file operation needs space on the disk.
func fills(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate, errorfs.OpMkdirAll,
		errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpLink, errorfs.OpRename:
		return true
	}
	return false
}

// fillsTable reports whether a file operation needs space for a table.
func fillsTable(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && fills(op) }

// failing returns a file system on which matching operations fail with err while on is set.
func failing(fs vfs.FS, on *atomic.Bool, err error, matches func(errorfs.Op) bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && matches(op) {
			return err
		}
		return nil
	}))
}

// TestDiskFull fills the disk at many different writes of a workload. It checks that the next start
// finds all data that was acknowledged, and that the engine neither hangs nor ends the process. At
// least 90 % of the rounds must really fill the disk.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	first := firstSeed(t)
	wanted := *fullWrites
	if testing.Short() {
		wanted /= 10
	}
	if testkit.RaceDetector {
		wanted /= 10
	}
	var folds [2]*[workVehicles][]vehicle.State // one for each number of partitions
	var writes [2]int64                         // of a workload whose disk is never full
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
		// Every second round fills the disk at a random write, mostly a later one,
		// where tables are written. The last fifth of the writes is left out,
		// because another run may have fewer writes.
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

// fillDisk runs a workload on a disk that becomes full: write number at fails, and so do all later
// writes, until the workload has ended or waits for room. Then fillDisk makes room again, closes
// the engine and simulates a crash, in which unsynced data is kept if at is odd, and lost if at is
// even. Finally it opens the engine again and checks the data. It returns the number of writes that
// were tried, and whether any of them found the disk full. The error is not nil if the workload
// hangs, if it fails without a full disk, if the engine stops storing but Writable returns no
// error, or if the next start does not find all promised data.
func fillDisk(
	ctx context.Context, seed uint64, at int64, folds *[workVehicles][]vehicle.State,
) (writes int64, full bool, err error) {
	mem := vfs.NewCrashableMem()
	w := &workload{seed: seed}
	var count atomic.Int64
	var room, refused atomic.Bool // room: there is space again
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fills(op) && count.Add(1) >= at && !room.Load() {
			refused.Store(true)
			return syscall.ENOSPC
		}
		return nil
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
				case <-time.After(time.Second): // a reader may wait for a lock that the halted write holds
				}
				break working
			case <-stalled.C:
				// While only tables cannot be written, writers wait for room.
				if errors.Is(w.e.Writable(), errTablesFailing) {
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
		_ = w.e.Close() // the disk may have been full
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: 100 * int(at%2), RNG: rand.New(rand.NewPCG(seed, 6)),
	})
	p.sent = w.promised().sent
	return count.Load(), refused.Load(), check(ctx, left, seed, folds, p)
}

// TestFailsOnceThereIsRoom checks that an engine that met a full disk reports a failure, but only
// once the disk accepts writes again.
func TestFailsOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	var full atomic.Bool
	e := mustOpen(ctx, t, small(failing(vfs.NewMem(), &full, syscall.ENOSPC, fills)))
	defer e.Close() // it reports the failure again
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

// TestEngine_RoomForLogOnly checks a running engine that can write its log but no tables. It must
// say so, keep no caller of Append for longer than the caller waits, and still answer queries. Once
// there is room, it must continue without a restart.
func TestEngine_RoomForLogOnly(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	var full atomic.Bool
	fs := failing(vfs.NewMem(), &full, syscall.ENOSPC, fillsTable)
	e := mustOpen(ctx, t, small(fs))
	acked := 0
	put := func(wait time.Duration) error {
		batch := make([]vehicle.Sample, 100)
		for i := range batch {
			batch[i] = sample("v", int64(1000*(acked+i+1)), 50)
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- e.Append(waiting, batch) }()
		select {
		case err := <-done:
			if err == nil {
				acked += len(batch)
			}
			return err
		case <-time.After(wait + testkit.Patience):
			t.Fatal("Append hangs")
			return nil
		}
	}
	holds := func(when string) {
		t.Helper()
		if found, err := e.Recent(ctx, "v", math.MaxInt); err != nil || len(found.Samples) < acked {
			t.Errorf("samples %s: got %d, %v, want at least %d", when, len(found.Samples), err, acked)
		}
	}
	full.Store(true)
	for put(time.Second) == nil { // the log has room until the memory is full
	}
	if err := e.Writable(); !errors.Is(err, errTablesFailing) || e.Alive() != nil {
		t.Errorf("Writable: got %v, want %v; Alive: got %v, want nil", err, errTablesFailing, e.Alive())
	}
	holds("without room")
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

// TestDamage changes a byte, truncates a file or removes a file, in the store of a closed engine or
// of a killed process. It checks that either a start or a reader reports the damage, or all
// promised data is still there. At least a tenth of the damages must be reported.
func TestDamage(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	first := firstSeed(t)
	folds := allFolds(first)
	n := *damages
	if testing.Short() {
		n = 100
	}
	if testkit.RaceDetector {
		n = max(100, n/15)
	}
	refused := 0
	for range n / 100 {
		mem := vfs.NewCrashableMem()
		w := &workload{seed: first}
		testkit.NoError(t, w.open(ctx, mem))
		if err := w.run(ctx); err != nil {
			t.Fatalf("-seed %d: the workload: %v", first, err)
		}
		closed := first/2%2 == 0 // an odd seed has two partitions
		clone := func() *vfs.MemFS {
			return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(first, 7))})
		}
		running := clone()
		testkit.NoError(t, w.e.Close())
		promised := w.promised()
		from := mem
		if !closed {
			from = running // as after a kill
		}
		for k := range 100 {
			r := rand.New(rand.NewPCG(first, uint64(k)))
			fs := from.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: r})
			what := damageFile(t, fs, r)
			err := check(ctx, fs, first, folds, promised)
			switch {
			case err == nil:
			case strings.Contains(err.Error(), "damaged") && strings.Contains(err.Error(), "restore a backup"),
				strings.Contains(err.Error(), "an older carstate"), strings.Contains(err.Error(), "a newer carstate"),
				strings.Contains(err.Error(), "not carstate's"):
				refused++
			default:
				t.Errorf("-seed %d: %s: %v", first, what, err)
			}
		}
		first++
		folds = allFolds(first)
	}
	if refused < n/10 {
		t.Errorf("%d of %d damages were found, want at least %d", refused, n, n/10)
	}
	t.Logf("done %d damages: %d of them refused", n/100*100, refused)
}

// damageFile damages one file, which r selects, and returns a description of the damage. Of the
// logs, it removes only the newest, because a start after a kill does not notice that an older log
// is missing.
func damageFile(t *testing.T, fs *vfs.MemFS, r *rand.Rand) (what string) {
	t.Helper()
	names, err := fs.List("/data/store")
	testkit.NoError(t, err)
	slices.Sort(names)
	files, newest := []string{"/data/" + identityFile}, ""
	for _, n := range names {
		if n != "LOCK" {
			files = append(files, "/data/store/"+n)
		}
		if wal.IsLog(n) {
			newest = "/data/store/" + n
		}
	}
	name := files[r.IntN(len(files))]
	content, err := durable.ReadFile(fs, name)
	testkit.NoError(t, err)
	size := len(content)
	switch remove, cut := r.IntN(10) == 0, r.IntN(4) == 0; {
	case size == 0, remove && (name == newest || !wal.IsLog(name)):
		testkit.NoError(t, fs.Remove(name))
		return name + " is removed"
	case cut:
		content = content[:r.IntN(size)]
		what = fmt.Sprintf("%s of %d bytes has %d", name, size, len(content))
	default:
		at := r.IntN(size)
		content[at] ^= byte(1 + r.IntN(255))
		what = fmt.Sprintf("byte %d of %s of %d bytes is flipped", at, name, size)
	}
	testkit.NoError(t, durable.WriteFile(fs, name, content))
	return what
}

// TestLogDamage flips a bit in the log of a killed process. Between acknowledged records, the log
// contains large batches that were not synced. A start must either report damage, or find all
// acknowledged records. Only the last acknowledged record may be missing, because no later record
// says that it was synced. At least half of the starts must report damage.
func TestLogDamage(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	fs := vfs.NewCrashableMem()
	config := Config{FS: fs, DataDir: "/data"}
	e := mustOpen(ctx, t, config)
	p := take(ctx, t, e, 0)
	const rounds, vehicles = 4, 1000
	for i := range int64(rounds) {
		states := make(map[vehicle.ID]*vehicle.State)
		for k := range vehicles {
			x := sample(fmt.Sprintf("v%d", k), 1000*(i+1), 50)
			s := vehicle.Observe(vehicle.State{}, x)
			states[x.Vehicle] = &s
		}
		testkit.NoError(t, p.Commit(ctx, 0, storetest.Packed(states), false))
		put(ctx, t, e, sample("v", 1000*(i+1), 50))
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{})
	testkit.NoError(t, e.Close())
	places := 20
	if testkit.RaceDetector {
		places = 4 // make test tries all of them without the race detector
	}
	refused := 0
	for i := range places {
		config.FS = killed.CrashClone(vfs.CrashCloneCfg{})
		flip(t, config.FS.(*vfs.MemFS), ".log", (float64(i)+0.5)/float64(places))
		e, err := Open(ctx, config)
		if err != nil {
			if refused++; !strings.Contains(err.Error(), "damaged") {
				t.Error(err)
			}
			continue
		}
		if found, err := e.Recent(ctx, "v", 2*rounds); err != nil || len(found.Samples) < rounds-1 {
			t.Errorf("place %d of %d: %d samples are left of %d, %v", i, places, len(found.Samples), rounds, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if refused < places/2 {
		t.Errorf("%d of %d damaged logs were refused, want at least %d", refused, places, places/2)
	}
}

// flip changes one bit of the largest file whose name ends in suffix. at is the position of the
// bit, as a fraction of the file's length. flip returns the contents of the store's files after the
// change.
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

// contents returns the contents of the files in a directory, by name.
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

// TestRoadsDamage flips a bit in a table of road profiles. It checks that the records of the
// damaged block and the last record before it are removed, that at least 80 % of the records
// remain, and that the next start finds no damage.
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
	defer e.Close() // it is closed below if the test passes
	scan := func() (found, damaged int) {
		t.Helper()
		next, damaged, err := e.ScanFrom(ctx, codec.Roads, 1, func(store.Record) error { found++; return nil })
		if err != nil || next != tiles+1 {
			t.Fatalf("ScanFrom: up to %d, %v", next, err)
		}
		return found, damaged
	}
	found, damaged := scan()
	if found < tiles*8/10 || found >= tiles || damaged != 1 {
		t.Errorf("%d of %d tiles were read, %d parts damaged", found, tiles, damaged)
	}
	if again, damaged := scan(); again != found-1 || damaged != 0 {
		t.Errorf("then %d tiles were read, %d parts damaged", again, damaged)
	}
	if err := e.Alive(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	e = mustOpen(ctx, t, config)
	if again, damaged := scan(); again != found-1 || damaged != 0 {
		t.Errorf("after a start %d tiles were read, %d parts damaged", again, damaged)
	}
}

// smallDisk is a file system with little free space.
type smallDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// TestLastRoomIsReserved checks that a nearly full disk takes neither telemetry nor the changes of
// operators, except those that take rights away.
func TestLastRoomIsReserved(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.free.Store(reservedBytes)
	e := open(t, Config{FS: disk})
	k := store.NewRecordStore(e, store.Config{}, new(access.Tables))
	sample := []vehicle.Sample{{Vehicle: "V1", Time: 1}}
	testkit.NoError(t, e.Append(t.Context(), slices.Clone(sample)))
	disk.free.Store(reservedBytes - 1)
	testkit.Await(t, "telemetry is refused", func() bool {
		return errors.Is(e.Append(t.Context(), slices.Clone(sample)), store.ErrBacklog)
	})
	for _, tt := range []struct {
		event access.Event
		ok    bool
	}{
		{access.Event{Actor: "ada", Action: "token.issue"}, false},
		{access.Event{Actor: "ada", Action: "node.change"}, false},
		{access.Event{Actor: "ada", Action: "token.revoke"}, true},
		{access.Event{Actor: "ada", Action: "source.remove"}, true},
		{access.Event{Actor: "ada", Action: "vehicle.forget"}, true},
		{access.Event{Actor: "admin", Admin: true, Action: "token.issue"}, true},
	} {
		if err := k.Audit(t.Context(), tt.event); (err == nil) != tt.ok {
			t.Errorf("%s of %s: got error %v, want success %v", tt.event.Action, tt.event.Actor, err, tt.ok)
		}
	}
	disk.free.Store(reservedBytes)
	testkit.Await(t, "telemetry is accepted", func() bool { return e.Append(t.Context(), slices.Clone(sample)) == nil })
}
