package local

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
)

type order int

const (
	forwards order = iota
	backwards
	twice // forwards, in two passes with the same entries
)

type entry struct {
	key, value []byte // valid until the next entry
	pass       int
}

// walk yields entries until Cut. It may end with an error, which the caller explains by readError
// or viewError. walk reads without a snapshot, which would keep erased records in the files.
func (e *Engine) walk(ctx context.Context, keys pebble.KeyRange, o order) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		if err := e.enter(); err != nil {
			yield(entry{}, err)
			return
		}
		defer e.leave()
		it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: keys.Start, UpperBound: keys.End})
		if err != nil {
			yield(entry{}, err)
			return
		}
		defer func() { _ = it.Close() }() // the error is that of it.Error
		first, next, passes := it.First, it.Next, 1
		switch o {
		case backwards:
			first, next = it.Last, it.Prev
		case twice:
			passes = 2
		}
		for pass := range passes {
			for ok := first(); ok; ok = next() {
				value, err := it.ValueAndErr()
				err = cmp.Or(ctx.Err(), err, e.cut.Err())
				if !yield(entry{it.Key(), value, pass}, err) || err != nil {
					return
				}
			}
			if err := it.Error(); err != nil {
				yield(entry{}, err)
				return
			}
		}
	}
}

// inOrder yields set records before the tokens and sources that refer to them.
func (e *Engine) inOrder(ctx context.Context, name string) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for is, err := range e.walk(ctx, span(letters[name]), twice) {
			var r store.Record
			if err == nil {
				r, err = decodeRecord(is.value)
			}
			if sets := is.pass == 0; err == nil && codec.IsSet(r.Subject) != sets {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (e *Engine) Scan(ctx context.Context, name string, patterns []string, do func(store.Record) error) error {
	for r, err := range e.inOrder(ctx, name) {
		if err != nil {
			return e.viewError(err)
		}
		matches := func(pattern string) bool { return codec.Matches(pattern, r.Subject) }
		if !slices.ContainsFunc(patterns, matches) {
			continue
		}
		if err := do(r); err != nil {
			return err
		}
	}
	return nil
}

// get returns a copy of the value, or nil if there is none. The caller explains the error.
func (e *Engine) get(key []byte) ([]byte, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	value, closer, err := e.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// last returns zero if there is none.
func (e *Engine) last(key []byte) (record store.Record, err error) {
	value, err := e.get(key)
	if value == nil {
		return record, err
	}
	return decodeRecord(value)
}

func (e *Engine) lastSequence(letter byte) (uint64, error) {
	value, err := e.get(endKey(letter))
	if value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, codec.ErrDamaged
	}
	return binary.BigEndian.Uint64(value), nil
}

// enter keeps the database open until the matching leave.
func (e *Engine) enter() error {
	if e.cut.Err() != nil || !e.reading.TryRLock() {
		return engine.ErrClosed
	}
	return nil
}

func (e *Engine) leave() { e.reading.RUnlock() }

func (e *Engine) diskUsage(keys pebble.KeyRange) (bytes uint64, err error) {
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.leave()
	return e.db.EstimateDiskUsage(keys.Start, keys.End)
}

// After damage, readError fails the engine, because the store cannot be trusted any more.
func (e *Engine) readError(err error) error {
	err, damaged := e.explainRead(err)
	if damaged {
		e.fail(err)
	}
	return err
}

// After damage, viewError returns an [access.ErrDamaged], logged once. The engine continues: folds
// and starts do not need the data, or find the damage themselves.
func (e *Engine) viewError(err error) error {
	err, damaged := e.explainRead(err)
	if !damaged {
		return err
	}
	if e.viewDamaged.CompareAndSwap(false, true) {
		e.config.Log.Error("a part of the store is damaged: what needs it fails, and further such damage is not logged",
			"error", err)
	}
	return partError{err}
}

type partError struct{ error }

func (partError) Is(target error) bool {
	return target == codec.ErrDamaged || target == access.ErrDamaged
}

func isNotDamage(err error) bool {
	is, _ := errors.AsType[syscall.Errno](err)
	switch is {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EIO:
		return true
	}
	return false
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (e *Engine) explainRead(err error) (_ error, damaged bool) {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, engine.ErrClosed):
		return err, false
	case errors.As(err, new(damagedError)): // explained already
		return err, true
	case isNotDamage(err):
		return e.dir.unusable("read", storeDir, errors.New(access.OneLine(err))), false
	}
	return e.dir.damaged(cause(err)), true
}

// cause returns the first line: Pebble adds others for further tables, and a placeholder.
func cause(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return access.OneLine(errors.New(line))
}

// When it opens, Pebble writes the records of all logs to tables, for which it needs space.
func (e *Engine) checkSpace() error {
	disk, err := e.config.FS.GetDiskUsage(e.dir.path)
	if err != nil {
		return nil
	}
	need := uint64(probeBytes) // for other new files
	files, err := e.config.FS.List(e.dir.name(storeDir))
	if err != nil {
		return nil // reading the directory fails later, with a better error
	}
	for _, f := range files {
		if !isLog(f) {
			continue
		}
		if info, err := e.config.FS.Stat(e.config.FS.PathJoin(e.dir.name(storeDir), f)); err == nil {
			need += uint64(info.Size()) / 16 * 17
		}
	}
	if room := disk.AvailBytes + uint64(e.reserve.held())*partBytes; room < need {
		err := fmt.Errorf("no space left on device: %d MiB are free and %d MiB are needed", room>>20, need>>20+1)
		return e.dir.unusable("written", "", err)
	}
	return nil
}
