package local

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

const trimEvery = 10 * time.Second

func (e *Engine) measure() {
	n := 0
	for range periodic.NowAndEvery(e.cut, watchEvery) {
		if e.writesFailed.Err() != nil {
			return
		}
		e.measureBacklog()
		e.measureDisk()
		if n++; n%10 == 1 {
			e.measureBytes()
			if !e.reserve.scarce.Load() { // or it could use up the reserve
				_ = e.removeAgain() // Erased tells
			}
		}
	}
}

// The reserve has reservedBytes, or a 32nd of a small disk. While it has less, or less than that is
// free beside it, only changes that take rights away are stored.
const reservedBytes = 64 << 20

func (e *Engine) measureDisk() {
	disk, err := e.config.FS.GetDiskUsage(e.dir.path)
	if err != nil {
		disk = vfs.DiskUsage{AvailBytes: math.MaxInt64}
	}
	least := min(reservedBytes, disk.TotalBytes/32)
	enough, parts, held := least, int(least/partBytes), e.reserve.held()
	if e.refusing {
		enough += least / 4
	}
	if more := min(parts-held, int(disk.AvailBytes/partBytes)-parts/4); more > 0 {
		if err := e.reserve.fill(held + more); err != nil && !errors.Is(err, syscall.ENOSPC) {
			e.trouble.Log(e.config.Log, "no room can be reserved: on a full disk, no token can be revoked", "error",
				e.dir.unusable("written", reserveDir, err))
		}
		disk.AvailBytes -= uint64(e.reserve.held()-held) * partBytes
	}
	full := e.reserve.full.Load() && e.reserve.held() < parts
	e.reserve.full.Store(full)
	scarce := full || disk.AvailBytes < enough
	e.reserve.scarce.Store(scarce)
	if e.refusing != scarce {
		e.refusing = scarce
		e.config.Log.Warn("disk space", "refusing_samples", scarce, "free_bytes", disk.AvailBytes)
	}
}

// The gauges are set here and not by a scrape: after a fatal error, the database does not respond.
func (e *Engine) measureBytes() {
	used := e.bytesOfFiles()
	fills := func(name string, letter byte, limit uint64) {
		if bytes, err := e.diskUsage(span(letter)); err == nil {
			e.metrics.Fills(name, bytes, limit)
			used[strings.ToLower(name)] = float64(bytes)
			used["overhead"] = max(0, used["overhead"]-float64(bytes))
		}
	}
	for name, letter := range letters {
		fills(name, letter, 0)
	}
	fills(codec.Telemetry, letterTelemetry, uint64(e.config.TelemetryBytes))
	for kind, bytes := range used {
		e.used.WithLabelValues(kind).Set(bytes)
	}
}

// The bytes include what files have allocated in advance. Tables are part of the overhead.
func (e *Engine) bytesOfFiles() map[string]float64 {
	kinds := map[string]string{storeDir: "overhead", reserveDir: reserveDir}
	used := map[string]float64{"log": 0, "overhead": 0, reserveDir: 0, "other": 0}
	_ = filepath.WalkDir(e.config.DataDir, func(path string, _ fs.DirEntry, _ error) error {
		in, _ := filepath.Rel(e.config.DataDir, path)
		in, _, _ = strings.Cut(in, "/")
		kind := cmp.Or(kinds[in], "other")
		if in == storeDir && isLog(path) {
			kind = "log"
		}
		var is syscall.Stat_t
		_ = syscall.Lstat(path, &is)
		used[kind] += float64(is.Blocks) * 512
		return nil
	})
	return used
}

// Append refuses if telemetry whose states are not stored, which Trim keeps, exceeds half of the
// limit of bytes, or if the oldest sample that is not folded is older than half of the retention.
func (e *Engine) measureBacklog() {
	var oldest time.Duration
	var bytes uint64
	now := e.config.Now()
	for n, s := range e.partitions {
		cursor := s.cursor.Load()
		s.mu.Lock()
		last, folded := s.last, max(s.answered, cursor)
		s.mu.Unlock()
		var age time.Duration
		if folded < last {
			// seq is 0 if no such group is left. Damage is left to the owner of the partition.
			if seq, stored, err := e.firstGroup(n, folded+1, forwards); err == nil && seq != 0 {
				age = max(0, now.Sub(stored))
			}
		}
		e.metrics.Backlogs[n].Store(int64(age))
		oldest = max(oldest, age)
		if last == cursor {
			continue
		}
		if unfolded, err := e.diskUsage(telemetrySpan(n, cursor+1)); err == nil {
			bytes += unfolded
		}
	}
	over := oldest > e.config.Retention/2 || bytes > uint64(e.config.TelemetryBytes)/2
	if e.over.Swap(over) != over {
		e.config.Log.Warn("backlog", "refusing_samples", over, "oldest", oldest, "bytes", bytes)
	}
}

func (e *Engine) Trim(ctx context.Context) {
	audit := e.streams[codec.Audit]
	merged := audit.last.Load()
	for range periodic.Every(ctx, trimEvery) {
		if e.writesFailed.Err() != nil || e.Alive() != nil {
			return
		}
		if err := e.trim(); err != nil && ctx.Err() == nil {
			e.trouble.Log(e.config.Log, "cannot remove old telemetry", "error", err)
		}
		if last := audit.last.Load(); last >= merged+auditTable && e.Writable() == nil {
			if err := e.mergeAudit(ctx, merged+1, last); err != nil && ctx.Err() == nil {
				e.trouble.Log(e.config.Log, "cannot merge the tables of the audit", "error", err)
			}
			merged = last
		}
	}
}

const auditTable = 64

// Each flush adds a table of events. Pebble would merge none, because their keys do not overlap. So
// the first and last event are written again: Compact merges their table with all that it overlaps.
func (e *Engine) mergeAudit(ctx context.Context, first, last uint64) error {
	return e.safely(func() error {
		b := e.db.NewBatch()
		defer b.Close()
		for _, seq := range []uint64{first, last} {
			event, _ := e.get(auditKey(seq))
			if event == nil {
				return nil // a reader of a damaged or missing event gets the error
			}
			if err := b.Set(auditKey(seq), event, nil); err != nil {
				return err
			}
		}
		return errors.Join(b.Commit(pebble.NoSync), e.db.Compact(ctx, auditKey(first), auditKey(last+1), false))
	})
}

func (e *Engine) trim() error {
	now := e.config.Now()
	firsts := make([]uint64, len(e.partitions))
	var bytes uint64 // without trimmed telemetry, whose tables are deleted later
	for n, s := range e.partitions {
		end := s.stored() + 1
		first, _, err := e.firstReadable(n, 0, end)
		if err != nil {
			return err
		}
		firsts[n] = cmp.Or(first, end)
		is, err := e.diskUsage(telemetrySpan(n, firsts[n]))
		if err != nil {
			return err
		}
		bytes += is
	}
	for n, s := range e.partitions {
		first := firsts[n]
		upTo, err := e.firstSince(n, first, s.stored()+1, now)
		if err != nil {
			return err
		}
		if limit := uint64(e.config.TelemetryBytes); bytes > limit/10*8 {
			// Groups have similar sizes.
			excess := float64(bytes-limit/10*6) / float64(bytes)
			upTo = max(upTo, first+uint64(excess*float64(s.stored()+1-first)))
		}
		if upTo = min(upTo, s.cursor.Load()+1); upTo <= first {
			continue
		}
		if err := e.trimBefore(n, upTo); err != nil {
			return err
		}
	}
	return nil
}

// firstSince returns the first group within the retention, or end. It takes a damaged group for as
// old as the next. One from more than trimEvery in the future was stored before the clock was set
// back, and counts as too old.
func (e *Engine) firstSince(n int, first, end uint64, now time.Time) (uint64, error) {
	since, until := now.Add(-e.config.Retention), now.Add(trimEvery)
	for first < end {
		middle := first + (end-first)/2
		seq, stored, err := e.firstReadable(n, middle, end)
		switch {
		case err != nil:
			return 0, err
		case seq == 0 || seq >= end || !stored.Before(since) && stored.Before(until):
			end = middle
		default:
			first = seq + 1
		}
	}
	return end, nil
}

// firstReadable skips damage. If no group before end can be read, seq is 0 or that of a later one.
func (e *Engine) firstReadable(p int, from, end uint64) (seq uint64, stored time.Time, err error) {
	seq, stored, err = e.firstGroup(p, from, forwards)
	if !errors.Is(err, codec.ErrDamaged) {
		return seq, stored, err
	}
	// A read of damage takes about 10 ms, so its end is bisected.
	for seq = 0; end-from > 1; {
		middle := from + (end-from)/2
		is, at, err := e.firstGroup(p, middle, forwards)
		switch {
		case errors.Is(err, codec.ErrDamaged):
			from = middle
		case err != nil:
			return 0, stored, err
		default:
			end, seq, stored = middle, is, at
		}
	}
	return seq, stored, nil
}

func (e *Engine) TrimTo(_ context.Context, ends []uint64) (gone bool, err error) {
	last, gone := ends[0], true
	for n, s := range e.partitions {
		cursor := s.cursor.Load()
		if err := e.trimBefore(n, min(last, cursor)+1); err != nil {
			return false, err
		}
		gone = gone && min(last, s.stored()) <= cursor
	}
	return gone, nil
}

func (e *Engine) trimBefore(n int, upTo uint64) error {
	return e.safely(func() error {
		return e.db.DeleteRange(telemetryKey(n, 0), telemetryKey(n, upTo), pebble.NoSync)
	})
}

const slowestCompaction = 4 << 20 // in bytes per second, on a busy machine

func (e *Engine) ErasedWithin() (time.Duration, error) {
	bytes, err := e.diskUsage(pebble.KeyRange{Start: []byte{'A'}, End: []byte{'Z'}})
	return time.Duration(bytes/slowestCompaction) * time.Second, err
}

func (e *Engine) Erased(ctx context.Context) error {
	before, err := e.config.FS.List(e.dir.name(storeDir))
	if err = cmp.Or(e.removeAgain(), err); err == nil {
		err = e.safely(func() error {
			return cmp.Or(e.db.Flush(), e.db.Compact(ctx, []byte{'A'}, []byte{'Z'}, false))
		})
	}
	if err != nil {
		return err
	}
	// A table that is being read is deleted when its reader has finished.
	for range periodic.NowAndEvery(ctx, 10*time.Millisecond) {
		if e.writesFailed.Err() != nil { // Pebble would never answer
			return errWritesFailed
		}
		files, err := e.config.FS.List(e.dir.name(storeDir))
		old := func(file string) bool { return isLog(file) && slices.Contains(before, file) }
		m := e.db.Metrics().Table
		gone := err == nil && m.ZombieCount == 0 && m.ObsoleteCount == 0 && !slices.ContainsFunc(files, old)
		if err := e.removeAgain(); err != nil || gone {
			return err
		}
	}
	return errors.Join(ctx.Err(), errors.New("obsolete files of the store are not deleted yet"))
}

var (
	_ store.Engine = (*Engine)(nil)
	_ store.Eraser = (*Engine)(nil)
)
