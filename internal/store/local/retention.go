package local

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

const trimEvery = 10 * time.Second

// bytesEvery × watchEvery is the interval between measurements of the bytes on disk.
const bytesEvery = 10

// measure updates the metrics of the backlog and of the bytes on disk, until the context ends or
// Pebble has met a fatal error.
func (e *Engine) measure(ctx context.Context) {
	n := 0
	for range periodic.NowAndEvery(ctx, watchEvery) {
		if e.writesFailed.Err() != nil {
			return
		}
		e.measureBacklog()
		e.measureDisk()
		if n++; n%bytesEvery == 1 {
			e.measureBytes()
		}
	}
}

// reservedBytes is the free space on the disk that is kept for taking rights away: with less,
// neither telemetry nor an operator's other changes are stored. On a small disk it is a 32nd of it.
const reservedBytes = 64 << 20

func (e *Engine) measureDisk() {
	disk, err := e.config.FS.GetDiskUsage(e.dir.path)
	scarce := err == nil && disk.AvailBytes < min(reservedBytes, disk.TotalBytes/32)
	if e.scarce.Swap(scarce) != scarce {
		e.log.Warn("room on the disk", "refusing_samples", scarce, "free_bytes", disk.AvailBytes)
	}
}

// measureBytes updates the metrics of the sizes of each stream and of the store. A scrape returns
// the values of the last measurement and does not ask the database, which does not respond after a
// fatal error. If the size of a stream cannot be read, its last value is kept.
func (e *Engine) measureBytes() {
	fills := func(name string, letter byte, limit uint64) {
		if bytes, err := e.diskUsage(span(letter)); err == nil {
			e.metrics.Fills(name, bytes, limit)
		}
	}
	for name, letter := range letters {
		fills(name, letter, 0)
	}
	fills(codec.Telemetry, letterTelemetry, uint64(e.config.TelemetryBytes))
	e.used.Set(float64(e.db.Metrics().DiskSpaceUsage()))
}

// measureBacklog measures the age of the oldest telemetry that is stored but not folded into
// states, and the size of the telemetry whose states are not stored yet, which Trim does not
// remove. If one exceeds half of the retention or of Config.TelemetryBytes, Append refuses samples.
func (e *Engine) measureBacklog() {
	var oldest time.Duration
	var bytes uint64
	now := e.now()
	for n, s := range e.partitions {
		cursor := s.cursor.Load()
		s.mu.Lock()
		last, folded := s.last, max(s.answered, cursor)
		s.mu.Unlock()
		if last == cursor {
			continue
		}
		if folded < last {
			// If seq is 0, no group after the sequence folded is left. If there is damage, the
			// owner of the partition finds it, and the engine then fails.
			if seq, stored, err := e.firstGroup(n, folded+1); err == nil && seq != 0 {
				oldest = max(oldest, now.Sub(stored))
			}
		}
		if unfolded, err := e.diskUsage(telemetryKey(n, cursor+1), telemetryKey(n+1, 0)); err == nil {
			bytes += unfolded
		}
	}
	over := oldest > e.config.Retention/2 || bytes > uint64(e.config.TelemetryBytes)/2
	e.oldest.Store(int64(oldest))
	if e.over.Swap(over) != over {
		e.log.Warn("backlog", "refusing_samples", over, "oldest", oldest, "bytes", bytes)
	}
}

// backlogAge returns the age of the oldest stored sample that is not folded into a state, as of the
// last measurement (see measureBacklog). It returns 0 if all samples were folded.
func (e *Engine) backlogAge() time.Duration { return time.Duration(e.oldest.Load()) }

// Trim implements [store.Engine], every ten seconds. An error is logged, and the next round tries
// again. After a fatal error of Pebble, Trim returns.
func (e *Engine) Trim(ctx context.Context) {
	for range periodic.Every(ctx, trimEvery) {
		if e.writesFailed.Err() != nil || e.Alive() != nil {
			return
		}
		if err := e.trim(); err != nil && ctx.Err() == nil {
			e.trouble.Log(e.log, "cannot remove old telemetry", "error", err)
		}
	}
}

func (e *Engine) trim() error {
	now := e.now()
	firsts := make([]uint64, len(e.partitions))
	var bytes uint64 // of the telemetry that is left; tables of trimmed telemetry are deleted later
	for n := range e.partitions {
		first, _, err := e.firstReadable(n, 0, e.partitions[n].stored()+1)
		if err != nil {
			return err
		}
		if firsts[n] = first; first == 0 {
			continue
		}
		is, err := e.diskUsage(telemetryKey(n, first), telemetryKey(n+1, 0))
		if err != nil {
			return err
		}
		bytes += is
	}
	for n, s := range e.partitions {
		first := firsts[n]
		if first == 0 {
			continue
		}
		upTo, err := e.firstSince(n, first, s.stored()+1, now)
		if err != nil {
			return err
		}
		if limit := uint64(e.config.TelemetryBytes); bytes > limit/10*8 {
			// Groups have similar sizes, so the number of groups is used to estimate their bytes.
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

// firstSince returns the sequence of the first group of partition n in [first, end) whose age is
// within the retention, or end. A damaged group is as old as the next one that can be read. A group
// more than trimEvery in the future is too old: it was stored before the clock was set back.
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

// firstReadable is like firstGroup. But if that group cannot be read, firstReadable returns the
// first group after the damage, or a seq of 0 if there is none before the sequence end.
func (e *Engine) firstReadable(p int, from, end uint64) (seq uint64, stored time.Time, err error) {
	seq, stored, err = e.firstGroup(p, from)
	if !errors.Is(err, codec.ErrDamaged) {
		return seq, stored, err
	}
	// A read of damage takes about 10 ms, so the end of the damage is bisected.
	for seq = 0; end-from > 1; {
		middle := from + (end-from)/2
		is, at, err := e.firstGroup(p, middle)
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

func (e *Engine) TrimTo(_ context.Context, last uint64) (gone bool, err error) {
	gone = true
	for n, s := range e.partitions {
		cursor := s.cursor.Load()
		if err := e.trimBefore(n, min(last, cursor)+1); err != nil {
			return false, err
		}
		gone = gone && min(last, s.stored()) <= cursor
	}
	return gone, nil
}

// trimBefore removes the groups of partition n before upTo, without a sync.
func (e *Engine) trimBefore(n int, upTo uint64) error {
	return e.safely(func() error {
		return e.db.DeleteRange(telemetryKey(n, 0), telemetryKey(n, upTo), pebble.NoSync)
	})
}

// Removing a record does not erase it from the files. Its bytes remain in the log and in tables
// until a compaction has read them. So an erasure flushes the log into tables, and compacts them.

// slowestCompaction is the rate of compaction on a machine that is busy with other work, in bytes
// per second. An idle machine is several times as fast.
const slowestCompaction = 4 << 20

func (e *Engine) ErasedWithin(context.Context) (time.Duration, bool, error) {
	bytes, err := e.diskUsage([]byte{'A'}, []byte{'Z'})
	return time.Duration(bytes/slowestCompaction) * time.Second, true, err
}

// Erased compacts the whole store, which also erases what an earlier process has removed.
func (e *Engine) Erased(ctx context.Context) error {
	if err := e.emptyLogs(); err != nil {
		return err
	}
	if err := e.safely(func() error { return e.db.Compact(ctx, []byte{'A'}, []byte{'Z'}, false) }); err != nil {
		return err
	}
	return e.awaitRemoved(ctx)
}

// emptyLogs writes all records in the write-ahead logs to tables, and deletes the log files. Pebble
// would keep some of these files, with their contents, to reuse them.
func (e *Engine) emptyLogs() error {
	files, err := e.config.FS.List(e.dir.name(storeDir))
	if err != nil {
		return err
	}
	if err := e.safely(e.db.Flush); err != nil {
		return err
	}
	for _, f := range files {
		if !isLog(f) {
			continue
		}
		err := e.config.FS.Remove(e.config.FS.PathJoin(e.dir.name(storeDir), f))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// awaitRemoved waits until the files that the store no longer needs are deleted. A file that is
// being read is deleted when its reader has finished.
func (e *Engine) awaitRemoved(ctx context.Context) error {
	for range periodic.NowAndEvery(ctx, 10*time.Millisecond) {
		if e.writesFailed.Err() != nil { // Pebble would never answer
			return errWritesFailed
		}
		if m := e.db.Metrics(); m.Table.ZombieCount == 0 && m.Table.ObsoleteCount == 0 {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("obsolete files of the store are not deleted yet"))
}

var _ store.Engine = (*Engine)(nil)
