package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/damage"
	"example.org/carstate/internal/store/local/durable"
)

// Salvaged says what [Salvage] found of one kind of record.
type Salvaged struct {
	What string `json:"what"` // a stream, "cursors" or [Log]
	// Kept is the number of good records, which are in the new directory. For telemetry, it is the
	// number of groups of samples that were stored together.
	Kept int `json:"kept"`
	// Damaged is the number of records that could be read but not decoded.
	Damaged int `json:"damaged"`
	// Unreadable is the number of key ranges whose records could not be read. The number of records
	// in such a range is unknown.
	Unreadable int `json:"unreadable"`
	// LostFrom and LostUntil bound the time of the unreadable records, for telemetry and AUDIT.
	// LostFrom is the time of the last readable record before the first unreadable range. LostUntil
	// is the time of the first readable record after the last unreadable range. Each is zero if
	// there is no such record or if nothing is unreadable.
	LostFrom  time.Time `json:"lost_from,omitzero"`
	LostUntil time.Time `json:"lost_until,omitzero"`
}

// Log is the value of [Salvaged.What] for the write-ahead log. In such a result, Unreadable is the
// number of damaged log files, and Kept is always 0.
const Log = "LOG"

// batchBytes is the size in bytes of the batches in which Salvage writes records.
const batchBytes = 4 << 20

// Salvage copies the good records of a damaged data directory into a new directory, which must not
// exist. It returns what it found of telemetry, of the cursors, of each other stream in the order
// of their names, and of the write-ahead log. The files of the damaged directory are unchanged. If
// the log is damaged, an older record of the same subject may reappear in place of a lost record.
//
// Salvage makes the copy in a directory beside the new one, whose name has the suffix
// [durable.Unfinished], and renames it when the copy is complete. If it fails before, it removes
// the incomplete copy. If fsys is nil, the machine's file system is used.
func Salvage(ctx context.Context, fsys vfs.FS, from, to string) (found []Salvaged, err error) {
	defer func() {
		if e, ok := errors.AsType[damagedError](err); ok {
			err = fmt.Errorf("the data directory %s is too damaged to copy records from it (%s): restore a backup "+
				"into a new --data-dir", e.path, e.what)
		}
	}()
	fsys = cmp.Or[vfs.FS](fsys, vfs.Default)
	if _, err := fsys.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists already: choose a directory that does not exist", to)
	}
	if id, err := (&dataDir{fs: fsys, path: from}).identify(); err != nil {
		return nil, err
	} else if id.Format == 0 {
		return nil, fmt.Errorf("%s is not a data directory or cannot be read: no %s", from, identityFile)
	}
	old, err := openDataDir(fsys, from, 0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = old.close() }() // nothing was written
	db, err := damage.Open(fsys, old.name(storeDir))
	if damage.IsUnreadable(err) {
		err = old.damaged("neither its log nor the list of its tables can be read: " + access.OneLine(err))
	}
	if err != nil {
		return nil, err
	}
	defer db.Close()

	unfinishedDir := to + durable.Unfinished
	if _, err := fsys.Stat(unfinishedDir); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists already, where the copy is made first: move it away", unfinishedDir)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fsys.RemoveAll(unfinishedDir))
		}
	}()
	e, err := Open(ctx, Config{FS: fsys, DataDir: unfinishedDir, Partitions: old.Partitions})
	if err != nil {
		return nil, err
	}
	s := salvager{old: db, e: e, batch: e.db.NewBatch()}
	err = s.all(ctx, old.Partitions)
	if err = errors.Join(err, e.dir.change(func(id *identity) { id.Made = old.Made }), e.Close()); err != nil {
		return nil, err
	}
	if err := copyFiles(fsys, from, unfinishedDir); err != nil {
		return nil, err
	}
	if err := fsys.Rename(unfinishedDir, to); err != nil {
		return nil, err
	}
	return append(s.found, Salvaged{What: Log, Unreadable: db.BadLogs}), durable.SyncDir(fsys, fsys.PathDir(to))
}

// copyFiles copies the files that are not part of the store, except carstate.json, its copy and the
// lock.
func copyFiles(fsys vfs.FS, from, to string) error {
	files, err := fsys.List(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := fsys.Stat(fsys.PathJoin(from, f))
		if err != nil || info.IsDir() || f == identityFile || f == identityCopy || f == lockFile {
			continue
		}
		content, err := durable.ReadFile(fsys, fsys.PathJoin(from, f))
		if err == nil {
			err = durable.WriteFile(fsys, fsys.PathJoin(to, f), content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// salvager copies the readable records of a damaged store into a new one.
type salvager struct {
	old   *damage.Store
	e     *Engine
	batch *pebble.Batch
	found []Salvaged
}

// all copies all telemetry, cursors and records of streams.
func (s *salvager) all(ctx context.Context, partitions int) error {
	before := make(map[int]uint64)
	err := s.copy(ctx, codec.Telemetry, letterTelemetry, storedAt, func(key, value []byte) error {
		if len(key) != len(telemetryKey(0, 0)) {
			return codec.ErrDamaged
		}
		p := int(binary.BigEndian.Uint16(key[1:]))
		g, err := decodeGroup(p, key, value)
		if err != nil || p >= partitions {
			return codec.ErrDamaged
		}
		g.before, before[p] = before[p], g.seq // the groups between may be lost
		return s.batch.Set(key, g.encode(), nil)
	})
	if err != nil {
		return err
	}
	for _, name := range []string{codec.Audit, codec.Roads, codec.Sources, codec.States, codec.Tokens} {
		if err := s.stream(ctx, name); err != nil {
			return err
		}
	}
	return s.flush(pebble.Sync)
}

// stream copies the records of a stream and its last sequence.
func (s *salvager) stream(ctx context.Context, name string) error {
	letter, last := letters[name], s.e.streams[name].last.Load() // the new store has written records of its own
	var when func(value []byte) time.Time
	if name == codec.Audit {
		when = eventTime
	}
	err := s.copy(ctx, name, letter, when, func(_, value []byte) error {
		r, err := decodeRecord(value)
		if err != nil {
			return codec.ErrDamaged
		}
		key := s.e.keyOf(letter, r.Subject)
		if name == codec.Audit {
			key = auditKey(r.Seq)
		}
		last = max(last, r.Seq)
		if err := set(s.batch, key, r); err != nil {
			return codec.ErrDamaged
		}
		return nil
	})
	if err != nil {
		return err
	}
	if end, err := number(s.old.DB, endKey(letter)); err == nil {
		last = max(last, end)
	}
	return s.batch.Set(endKey(letter), binary.BigEndian.AppendUint64(nil, last), nil)
}

// eventTime returns the time of a stored event of AUDIT, or zero if it cannot be decoded.
func eventTime(value []byte) time.Time {
	var e access.Event
	if r, err := decodeRecord(value); err != nil || json.Unmarshal(r.Body, &e) != nil {
		return time.Time{}
	}
	return e.Time
}

// copy calls put for every record whose key begins with the given letter, in a range that cannot be
// read for those that are readable without the damaged tables. A record for which put returns
// [codec.ErrDamaged] is counted as damaged. when returns the time of a record.
func (s *salvager) copy(
	ctx context.Context, what string, letter byte, when func(value []byte) time.Time,
	put func(key, value []byte) error,
) error {
	is := Salvaged{What: what}
	take := func(key, value []byte) error {
		err := put(key, value)
		if errors.Is(err, codec.ErrDamaged) {
			is.Damaged++
			return nil
		}
		if is.Kept++; err == nil && s.batch.Len() > batchBytes {
			err = s.flush(pebble.NoSync)
		}
		return err
	}
	var last time.Time // of the newest record that was read
	behind := false    // an unreadable part follows the last record that was read
	from, to := span(letter)
	for from != nil {
		read := false
		key, err := damage.ReadGood(ctx, s.old.Iterator, from, to, func(key, value []byte) error {
			if read = true; when != nil && len(value) >= timeBytes {
				last = when(value)
			}
			if behind {
				is.LostUntil, behind = last, false
			}
			return take(key, value)
		})
		if !damage.IsUnreadable(err) {
			if err != nil {
				return err
			}
			break
		}
		if is.Unreadable++; is.Unreadable == 1 {
			is.LostFrom = last
		}
		behind, is.LostUntil = true, time.Time{}
		gap := key
		if read {
			gap = append(bytes.Clone(key), 0)
		}
		from = damage.ReadableAfter(s.old.Iterator, key, to)
		end := from
		if end == nil {
			end = to
		}
		if err := s.old.ReadOthers(ctx, gap, end, take); err != nil {
			return err
		}
	}
	s.found = append(s.found, is)
	return nil
}

func (s *salvager) flush(sync *pebble.WriteOptions) error {
	err := s.batch.Commit(sync)
	s.batch = s.e.db.NewBatch()
	return err
}
