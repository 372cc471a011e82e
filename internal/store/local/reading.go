package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// reader replaces Scan of the Engine, so it implements [store.Records].
type reader struct {
	*Engine
	viewed bool // of Engine.view, not of Engine.own
}

// Damage of what own reads makes the engine fail.
func (e *Engine) own() reader { return reader{e, false} }

// Damage of what view reads, only to show it to an operator, fails the read.
func (e *Engine) view() reader { return reader{e, true} }

func (r reader) explain(err error) error {
	if r.viewed {
		return r.viewError(err)
	}
	return r.readError(err)
}

type iterator struct {
	*pebble.Iterator
	r reader
}

func (it iterator) Close() error {
	defer it.r.leave()
	return it.Iterator.Close()
}

func (r reader) iterator(from, to []byte) (it iterator, err error) {
	if err := r.enter(); err != nil {
		return it, err
	}
	inner, err := r.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		r.leave()
		return it, r.explain(err)
	}
	return iterator{inner, r}, nil
}

// each ends early if do returns an error, a read fails, ctx ends, or Cut is called.
func (it iterator) each(ctx context.Context, do func(value []byte) error) error {
	for ok := it.First(); ok; ok = it.Next() {
		if err := cmp.Or(ctx.Err(), it.r.cut.Err()); err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return it.r.explain(err)
		}
		if err := do(value); err != nil {
			return err
		}
	}
	return it.r.explain(it.Error())
}

func (r reader) records(do func(store.Record) error) func(value []byte) error {
	return func(value []byte) error {
		record, err := decodeRecord(value)
		if err != nil {
			return r.explain(err)
		}
		return do(record)
	}
}

func (r reader) Scan(ctx context.Context, name string, patterns []string, do func(store.Record) error) error {
	return r.inOrder(ctx, name, func(record store.Record) error {
		for _, p := range patterns {
			if codec.Matches(p, record.Subject) {
				return do(record)
			}
		}
		return nil
	})
}

// Set records come before the tokens and sources that refer to them. The records of AUDIT are in
// order.
func (r reader) inOrder(ctx context.Context, name string, do func(store.Record) error) error {
	it, err := r.iterator(span(letters[name])) // a snapshot would keep erased records in the files
	if err != nil {
		return err
	}
	defer it.Close()
	if name != codec.Tokens && name != codec.Sources {
		return it.each(ctx, r.records(do))
	}
	for _, sets := range []bool{true, false} {
		err := it.each(ctx, r.records(func(record store.Record) error {
			if codec.IsSet(record.Subject) != sets {
				return nil
			}
			return do(record)
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// The record shares no memory with the database, and is zero if there is none.
func (r reader) last(key []byte) (record store.Record, err error) {
	if err := r.enter(); err != nil {
		return record, err
	}
	defer r.leave()
	value, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return store.Record{}, nil
	}
	if err != nil {
		return record, r.explain(err)
	}
	defer closer.Close()
	record, err = decodeRecord(bytes.Clone(value))
	return record, r.explain(err)
}

func number(db *pebble.DB, key []byte) (uint64, error) {
	value, closer, err := db.Get(key)
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = nil
		}
		return 0, err
	}
	defer closer.Close()
	if len(value) != 8 {
		return 0, codec.ErrDamaged
	}
	return binary.BigEndian.Uint64(value), nil
}

// Until the matching leave, the database is not closed.
func (e *Engine) enter() error {
	e.readers.Add(1)
	if e.cut.Err() != nil {
		e.readers.Add(-1)
		return errClosed
	}
	return nil
}

func (e *Engine) leave() { e.readers.Add(-1) }

func (e *Engine) diskUsage(from, to []byte) (bytes uint64, err error) {
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.leave()
	return e.db.EstimateDiskUsage(from, to)
}

const (
	readersWithin = time.Second
	readersPoll   = 2 * time.Millisecond
)

func (e *Engine) awaitReaders() bool {
	for until := time.Now().Add(readersWithin); e.readers.Load() > 0; {
		if time.Now().After(until) {
			return false
		}
		<-time.After(readersPoll)
	}
	return true
}

// After damage, the engine fails, because the store cannot be trusted any more.
func (e *Engine) readError(err error) error {
	err, damaged := e.explainRead(err)
	if damaged {
		e.fail(err)
	}
	return err
}

// After damage, it returns an [access.ErrDamaged], logged once. The engine continues: folds and
// starts do not need the data, or find the damage themselves.
func (e *Engine) viewError(err error) error {
	err, damaged := e.explainRead(err)
	if !damaged {
		return err
	}
	if e.viewDamaged.CompareAndSwap(false, true) {
		e.log.Error("a part of the store is damaged: answers that need it fail, and further such damage is not logged",
			"error", err)
	}
	return partError{err}
}

type partError struct{ error }

func (partError) Is(target error) bool {
	return target == codec.ErrDamaged || target == access.ErrDamaged
}

func isNotDamage(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EIO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (e *Engine) explainRead(err error) (_ error, damaged bool) {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errClosed):
		return err, false
	case errors.As(err, new(damagedError)): // explained already
		return err, true
	case isNotDamage(err):
		return e.dir.unusable("read", storeDir, errors.New(access.OneLine(err))), false
	}
	return e.dir.damaged(access.OneLine(err)), true
}

// Pebble needs space for tables with all records of the logs.
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
