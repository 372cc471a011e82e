package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
)

type stream struct {
	e      *Engine
	name   string
	letter byte
	turn   chan struct{} // holds a value while a change runs
	last   atomic.Uint64 // greatest stored sequence; written by changes
	feeds  []*feed
}

// do runs f in its turn. If ctx ends, f may have run or still run.
func (s *stream) do(ctx context.Context, f func() error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.e.halted.Done():
		return context.Cause(s.e.halted)
	}
	return s.e.unblocked(ctx, func() error {
		defer func() { <-s.turn }()
		if s.e.cut.Err() != nil {
			return engine.ErrClosed
		}
		return f()
	})
}

func (e *Engine) Last(_ context.Context, name, subject string) (store.Record, error) {
	if e.writesFailed.Err() != nil { // the last record may not be on disk
		return store.Record{}, errWritesFailed
	}
	r, err := e.last(e.keyOf(letters[name], subject))
	return r, e.viewError(err)
}

func (e *Engine) Store(ctx context.Context, name string, writes []store.Write) (seq uint64, err error) {
	s := e.streams[name]
	var stored uint64 // the write may continue after the context has ended
	err = s.do(ctx, func() error {
		b := e.db.NewBatch()
		defer b.Close()
		last := s.last.Load()
		for _, w := range writes {
			key := e.keyOf(s.letter, w.Subject)
			if w.Expected {
				is, err := e.last(key)
				if err != nil {
					return e.readError(err)
				}
				if is.Seq != w.Expect {
					return store.ErrConflict
				}
			}
			last++
			if name == codec.Audit {
				key = auditKey(last)
			}
			if err := b.Set(key, appendRecord(nil, last, w.Subject, w.Record), nil); err != nil {
				return err
			}
		}
		if err := b.Set(endKey(s.letter), binary.BigEndian.AppendUint64(nil, last), nil); err != nil {
			return err
		}
		if err := e.commit(b, name, last); err != nil {
			return err
		}
		s.last.Store(last)
		stored = last
		s.notifyFeeds(last, writes)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return stored, nil
}

func (s *stream) notifyFeeds(last uint64, writes []store.Write) {
	for i, w := range writes {
		r := store.Record{Subject: w.Subject, Seq: last - uint64(len(writes)-1-i), Sealed: w.Record}
		var err error
		if r.Body, err = codec.Unseal(w.Subject, w.Record); err != nil {
			s.e.fail(err)
			return
		}
		for _, f := range s.feeds {
			if err := f.apply(r); err != nil {
				s.e.fail(fmt.Errorf("%s: record %d: %w", s.name, r.Seq, err))
			}
			f.Advance(r.Seq)
		}
	}
}

// If a part of ROADS cannot be read, all from there on is removed: it will be learned again.
func (e *Engine) ScanFrom(
	ctx context.Context, name string, from uint64, do func(store.Record) error,
) (next uint64, damaged int, err error) {
	s := e.streams[name]
	next = s.last.Load() + 1
	if next <= from {
		return from, 0, nil
	}
	rest := span(s.letter) // from the last good record on
	for is, failed := range e.walk(ctx, rest, forwards) {
		if failed != nil {
			err = failed
			break
		}
		rest.Start = bytes.Clone(is.key)
		r, err := decodeRecord(is.value)
		if err == nil && r.Seq >= from {
			err = do(r)
		}
		if err != nil {
			damaged++
		}
	}
	if err == nil {
		return next, damaged, nil
	}
	if _, isDamage := e.explainRead(err); !isDamage || name != codec.Roads {
		return from, damaged, e.readError(err)
	}
	e.trouble.Log(e.config.Log, "stored profiles of roads are damaged: they are removed, and learned again")
	// The last good record goes, too: an iterator that ends behind it would also read damaged data.
	if err = s.do(ctx, func() error { return e.db.Excise(ctx, rest) }); err != nil {
		return from, damaged, err
	}
	return next, damaged + 1, nil
}

func (e *Engine) Before(
	ctx context.Context, name string, before uint64, limit int,
) (records []store.Record, older uint64, err error) {
	keys := span(letters[name])
	if before != 0 {
		keys.End = auditKey(before)
	}
	for is, err := range e.walk(ctx, keys, backwards) {
		if err == nil && len(records) == limit {
			return records, sequenceOf(is.key) + 1, nil
		}
		var r store.Record
		if err == nil {
			r, err = decodeRecord(bytes.Clone(is.value))
		}
		if err != nil {
			return nil, 0, e.viewError(err)
		}
		records = append(records, r)
	}
	return records, 0, nil
}

func (e *Engine) Remove(ctx context.Context, name string, records []store.Record) error {
	if len(records) == 0 {
		return nil
	}
	s := e.streams[name]
	return s.do(ctx, func() error {
		b := e.db.NewBatch()
		defer b.Close()
		for _, r := range records {
			key := e.keyOf(s.letter, r.Subject)
			if r.Seq != 0 {
				is, err := e.last(key) // a damaged record may go, if its sequence can be read
				if err != nil && is.Seq == 0 {
					return e.viewError(err)
				}
				if is.Seq != r.Seq {
					continue
				}
			}
			if err := b.Delete(key, nil); err != nil {
				return err
			}
		}
		return e.commit(b, name, s.last.Load())
	})
}

func (e *Engine) Ends(_ context.Context, name string) ([]uint64, error) {
	return []uint64{e.ends()[name]}, nil
}

func (e *Engine) loadEnds() error {
	e.streams = make(map[string]*stream)
	for name, letter := range letters {
		s := &stream{e: e, name: name, letter: letter, turn: make(chan struct{}, 1)}
		last, err := e.lastSequence(letter)
		if errors.Is(err, codec.ErrDamaged) {
			return e.dir.damaged("the last sequence of " + name + " is invalid")
		}
		if err != nil {
			return e.readError(err)
		}
		s.last.Store(last)
		e.streams[name] = s
	}
	if err := e.loadPartitions(); err != nil {
		return err
	}
	ends := e.ends()
	for _, before := range []map[string]uint64{e.dir.Ends, readMark(e.dir)} {
		for name, was := range before {
			if is := ends[name]; is < was {
				return e.dir.damaged(fmt.Sprintf("%s held records up to %d and now ends at %d", name, was, is))
			}
		}
	}
	return nil
}

func (e *Engine) ends() map[string]uint64 {
	ends := map[string]uint64{codec.Telemetry: e.telemetryEnd()}
	for name, s := range e.streams {
		ends[name] = s.last.Load()
	}
	for n, p := range e.partitions {
		ends[telemetryEndName(n)] = p.stored()
		ends[fmt.Sprintf("cursor %d", n)] = p.cursor.Load()
	}
	return ends
}

func (e *Engine) noteEnds(ends map[string]uint64) {
	for _, name := range codec.Streams {
		e.mark.note(name, ends[name])
	}
}

func telemetryEndName(p int) string { return fmt.Sprintf("%s %d", codec.Telemetry, p) }

type feed struct {
	s     *stream
	apply func(store.Record) error
	engine.Progress
}

func (e *Engine) Feed(name string, apply func(store.Record) error) store.Feed {
	return &feed{s: e.streams[name], apply: apply}
}

func (f *feed) Run(ctx context.Context, caughtUp func()) error {
	err := f.s.do(ctx, func() error {
		for r, err := range f.s.e.inOrder(ctx, f.s.name) {
			if err != nil {
				return f.s.e.readError(err)
			}
			if err := f.apply(r); err != nil {
				return err
			}
		}
		f.Advance(f.s.last.Load())
		f.s.feeds = append(f.s.feeds, f)
		return nil
	})
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, engine.ErrClosed) {
			return nil
		}
		return err
	}
	caughtUp()
	<-ctx.Done()
	return nil
}

const (
	letterTelemetry = 'L'
	letterEnd       = 'M'
)

var letters = map[string]byte{
	codec.States: 'S', codec.Tokens: 'T', codec.Sources: 'O', codec.Roads: 'R', codec.Audit: 'A',
}

// keyOf is not for AUDIT, whose keys contain no subject.
func (e *Engine) keyOf(letter byte, subject string) []byte {
	sum := e.hasher.Sum(subject)
	return append([]byte{letter}, sum[:16]...)
}

func telemetryKey(p int, seq uint64) []byte {
	k := binary.BigEndian.AppendUint16([]byte{letterTelemetry}, uint16(p))
	return binary.BigEndian.AppendUint64(k, seq)
}

// sequenceOf takes a key of telemetry or AUDIT.
func sequenceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func auditKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{letters[codec.Audit]}, seq)
}

func endKey(letter byte) []byte { return []byte{letterEnd, letter} }

func span(letter byte) pebble.KeyRange {
	return pebble.KeyRange{Start: []byte{letter}, End: []byte{letter + 1}}
}

func appendRecord(b []byte, seq uint64, subject string, sealed []byte) []byte {
	b = binary.AppendUvarint(b, seq)
	b = binary.AppendUvarint(b, uint64(len(subject)))
	b = append(b, subject...)
	return append(b, sealed...)
}

func decodeRecord(value []byte) (r store.Record, err error) {
	b := codec.Reader{Rest: value}
	seq, subject := b.Uvarint(), b.Counted()
	if b.Short || len(b.Rest) == 0 {
		return r, codec.ErrDamaged
	}
	r = store.Record{Seq: seq, Subject: string(subject), Sealed: b.Rest}
	r.Body, err = codec.Unseal(r.Subject, r.Sealed)
	return r, err
}
