package local

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/store/local/wal"
)

// iterator is an iterator of the database. Engine.Close waits until all iterators are closed, for
// readersWithin at most.
type iterator struct {
	*pebble.Iterator
	e *Engine
	// explain is [Engine.readError] or [Engine.viewError], for the errors of this iterator.
	explain func(error) error
}

// Close ends the iterator.
func (it iterator) Close() error {
	defer it.e.leave()
	return it.Iterator.Close()
}

// newIter returns an iterator over a range of keys, as of a single moment. Damage that it meets ends
// the engine.
func (e *Engine) newIter(from, to []byte) (it iterator, err error) {
	return e.iterator(from, to, e.readError)
}

// viewIter is like newIter, but damage does not end the engine (see viewError).
func (e *Engine) viewIter(from, to []byte) (it iterator, err error) {
	return e.iterator(from, to, e.viewError)
}

// views returns what viewIter returns, as the interface type that [readableAfter] needs.
func (e *Engine) views(from, to []byte) (recordIterator, error) { return e.viewIter(from, to) }

func (e *Engine) iterator(from, to []byte, explain func(error) error) (it iterator, err error) {
	if err := e.enter(); err != nil {
		return it, err
	}
	inner, err := e.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		e.leave()
		return it, explain(err)
	}
	return iterator{inner, e, explain}, nil
}

// enter announces a read of the database, so that the database is not closed until the matching
// call of [Engine.leave]. enter returns an error if Close or Cut was called.
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

// readersWithin is the maximum time that awaitReaders waits, and readersPoll is the interval at
// which it checks.
const (
	readersWithin = time.Second
	readersPoll   = 2 * time.Millisecond
)

// awaitReaders waits until no goroutine reads the database, and then returns true. It returns false
// after readersWithin, because a read on behalf of a slow client may take long.
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
// err means damage, the engine also fails, because the store cannot be trusted any more.
func (e *Engine) readError(err error) error {
	err, damaged := e.explainRead(err)
	if damaged {
		e.fail(err)
	}
	return err
}

// viewError is like readError, for a read that only answers an operator: the result is an
// [access.ErrDamaged], the engine continues, and only the first damage is logged. Folding and
// starting do not need what was read, or will meet the damage themselves.
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

// partError is the error of a read that damage has prevented, without ending the engine.
type partError struct{ error }

// Is reports whether target is [codec.ErrDamaged] or [access.ErrDamaged].
func (partError) Is(target error) bool {
	return target == codec.ErrDamaged || target == access.ErrDamaged
}

// opening is an engine that is being opened: damage that a scan meets ends it.
type opening struct{ *Engine }

// Scan implements [store.Records].
func (o opening) Scan(ctx context.Context, name string, patterns []string, do func(store.Record) error) error {
	return o.scanMatching(ctx, name, patterns, o.readError, do)
}

func (e *Engine) explainRead(err error) (_ error, damaged bool) {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errClosed):
		return err, false
	case isNotDamage(err):
		return e.dir.unusable("read", storeDir, errors.New(access.OneLine(err))), false
	}
	return e.dir.damaged(access.OneLine(err)), true
}

// isNotDamage reports whether err says nothing about the content of the files: the device has
// reported an I/O error, there are too many open files or too little memory, or this process may
// not read the files.
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
		if !wal.IsLog(f) {
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
