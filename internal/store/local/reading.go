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

// reader reads the database, and explains errors according to the purpose of the read (see viewed).
// It embeds the Engine and replaces Scan, so it also implements [store.Records].
type reader struct {
	*Engine
	// viewed is set in a reader of Engine.view, and not set in one of Engine.own.
	viewed bool
}

// own returns a reader for data that the engine itself needs. Damage makes the engine fail
// (readError).
func (e *Engine) own() reader { return reader{e, false} }

// view returns a reader for data that is only shown to an operator. Damage fails only the read.
func (e *Engine) view() reader { return reader{e, true} }

// explain turns err, an error of reading the database, into the error to report.
func (r reader) explain(err error) error {
	if r.viewed {
		return r.viewError(err)
	}
	return r.readError(err)
}

// iterator is an iterator of the database. Engine.Close waits until all iterators are closed, but
// at most for the time readersWithin.
type iterator struct {
	*pebble.Iterator
	r reader
}

// Close ends the iterator.
func (it iterator) Close() error {
	defer it.r.leave()
	return it.Iterator.Close()
}

// iterator returns an iterator over a range of keys, as of a single moment.
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

func (r reader) iterate(ctx context.Context, from, to []byte, do func(value []byte) error) error {
	it, err := r.iterator(from, to)
	if err != nil {
		return err
	}
	defer it.Close()
	return it.each(ctx, do)
}

// each calls do with every value of the iterator. It ends early, and returns an error, if do
// returns an error, a read fails, ctx ends, or Cut is called.
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

// records returns a function that decodes a stored record and passes it to do.
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

// inOrder calls do with every record of a stream, as of a single moment. The set records, which
// list the vehicles of large grants, come before the tokens and sources that refer to them. The
// records of AUDIT come in the order in which they were stored, all others in no particular order.
func (r reader) inOrder(ctx context.Context, name string, do func(store.Record) error) error {
	from, to := span(letters[name])
	if name != codec.Tokens && name != codec.Sources {
		return r.iterate(ctx, from, to, r.records(do))
	}
	// Use the same iterator for both passes. A snapshot would also show one moment, but would keep
	// erased records in the files.
	it, err := r.iterator(from, to)
	if err != nil {
		return err
	}
	defer it.Close()
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

// last returns the record with the given key, or the zero value if there is none. The record does
// not share memory with the database.
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
	if record, err = decodeRecord(bytes.Clone(value)); err != nil {
		return record, r.explain(err)
	}
	return record, nil
}

// number returns the number that is stored under a key, or 0 if there is none.
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

// number returns the number under a key of an engine that is being opened. An error names it as what.
func (e *Engine) number(key []byte, what string) (uint64, error) {
	n, err := number(e.db, key)
	if errors.Is(err, codec.ErrDamaged) {
		return 0, e.dir.damaged(what + " is invalid")
	}
	return n, e.readError(err)
}

// enter must be called before a read of the database. It prevents the closing of the database until
// the matching call of [Engine.leave]. enter returns an error if Close or Cut was called.
func (e *Engine) enter() error {
	e.readers.Add(1)
	if e.cut.Err() != nil {
		e.readers.Add(-1)
		return errClosed
	}
	return nil
}

func (e *Engine) leave() { e.readers.Add(-1) }

// diskUsage estimates the bytes of the tables that hold a range of keys.
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

// awaitReaders waits until no goroutine reads the database, but not longer than readersWithin, because
// a read for a slow client may take long.
func (e *Engine) awaitReaders() bool {
	for until := time.Now().Add(readersWithin); e.readers.Load() > 0; {
		if time.Now().After(until) {
			return false
		}
		<-time.After(readersPoll)
	}
	return true
}

// readError returns err, an error of reading the database, with an explanation for the operator. If
// err means damage, the engine also fails, because the store cannot be trusted any more. A nil
// error, an error of a context and errClosed are returned unchanged.
func (e *Engine) readError(err error) error {
	err, damaged := e.explainRead(err)
	if damaged {
		e.fail(err)
	}
	return err
}

// viewError is like readError, for a read of data that is only shown to an operator. If err means
// damage, the result is an [access.ErrDamaged], the engine continues, and only the first damage is
// logged. The engine may continue: either folds and starts do not need the damaged data, or they
// find the damage themselves.
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

// partError is the error of a read of damaged data after which the engine continues.
type partError struct{ error }

// Is reports whether target is [codec.ErrDamaged] or [access.ErrDamaged].
func (partError) Is(target error) bool {
	return target == codec.ErrDamaged || target == access.ErrDamaged
}

// isNotDamage reports whether err has another cause than damage of the files: the device has reported
// an I/O error, there are too many open files or too little memory, or this process may not read
// them.
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

// isLog reports whether name is a file of Pebble's write-ahead log.
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

// checkSpace returns an error if the disk lacks the space that Pebble needs to open the store: for
// tables with all records of the write-ahead logs, and for a new log. If a file system does not
// report its free space, checkSpace assumes that there is enough.
func (e *Engine) checkSpace() error {
	disk, err := e.config.FS.GetDiskUsage(e.dir.path)
	if err != nil {
		return nil
	}
	need := uint64(e.config.MemoryBytes) / memTables
	files, err := e.config.FS.List(e.dir.name(storeDir))
	if err != nil {
		return nil // reading the directory fails later, with a better error
	}
	for _, f := range files {
		if !isLog(f) {
			continue
		}
		if info, err := e.config.FS.Stat(e.config.FS.PathJoin(e.dir.name(storeDir), f)); err == nil {
			need += uint64(info.Size())
		}
	}
	if disk.AvailBytes < need {
		err := fmt.Errorf("no space left on device: %d MiB are free and %d MiB are needed",
			disk.AvailBytes>>20, need>>20+1)
		return e.dir.unusable("written", "", err)
	}
	return nil
}
