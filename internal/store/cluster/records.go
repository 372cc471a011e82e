package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// change is [store.Change] with the engine's patience.
func (e *Engine) change(ctx context.Context, stream, subject string, change func(is store.Record) ([]store.Write, error)) (seq uint64, err error) {
	return store.Change(ctx, e, e.config.Patience.Store, stream, subject, change)
}

// Last reads the last record of a subject from the stream's leader, never from a replica
// that may lag.
func (e *Engine) Last(ctx context.Context, stream, subject string) (store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := e.legacy.GetLastMsg(stream, subject, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return store.Record{}, nil
	}
	if err != nil {
		return store.Record{}, fmt.Errorf("the engine cannot be asked for %s: %w", subject, err)
	}
	body, err := codec.Unseal(subject, m.Data)
	return store.Record{Subject: subject, Body: body, Seq: m.Sequence, Sealed: m.Data}, err
}

const (
	// pageRecords and pageBytes bound what ScanFrom asks for at once.
	pageRecords = 1000
	pageBytes   = 8 << 20
	// replicaPause is how long Before waits before it asks again for a record that the
	// answering replica does not have yet.
	replicaPause = 20 * time.Millisecond
)

// ScanFrom calls do with the records from a sequence on. Any server may answer: one that
// lags behind leaves records to the next time.
func (e *Engine) ScanFrom(ctx context.Context, stream string, from uint64, do func(store.Record) error) (next uint64, damaged int, err error) {
	for next = from; ; {
		messages, end, err := e.directGet(ctx, stream, struct {
			Seq   uint64 `json:"seq"`
			Batch int    `json:"batch"`
			Bytes int    `json:"max_bytes"`
		}{next, pageRecords, pageBytes})
		if errors.Is(err, errNoRecords) {
			return next, damaged, nil
		}
		if err != nil {
			return next, damaged, err
		}
		for _, m := range messages {
			seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			if err != nil {
				return next, damaged, errors.New("the engine's answer makes no sense")
			}
			next = seq + 1
			r := store.Record{Subject: m.Header.Get("Nats-Subject"), Seq: seq, Sealed: m.Data}
			if r.Body, err = codec.Unseal(r.Subject, m.Data); err == nil {
				err = do(r)
			}
			if errors.Is(err, store.ErrStop) {
				return next, damaged, err
			}
			if err != nil {
				damaged++
			}
		}
		if len(messages) == 0 || end.Get("Nats-Num-Pending") == "0" {
			return next, damaged, nil
		}
	}
}

// Before returns the records of a stream from before a sequence, newest first.
func (e *Engine) Before(ctx context.Context, stream string, before uint64, limit int) (records []store.Record, older uint64, err error) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return nil, 0, err
	}
	state := s.CachedInfo().State
	seq, first := state.LastSeq, max(state.FirstSeq, 1)
	if before != 0 {
		seq = min(seq, before-1)
	}
	for ; seq >= first && len(records) < limit; seq-- {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if state.NumDeleted > 0 { // somebody deleted it by hand
				continue
			}
			// The replica that answered lags behind the leader.
			select {
			case <-time.After(replicaPause):
				seq++
				continue
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
		}
		if err != nil {
			return nil, 0, err
		}
		body, err := codec.Unseal(m.Subject, m.Data)
		if err != nil {
			return nil, 0, err
		}
		records = append(records, store.Record{Subject: m.Subject, Body: body, Seq: m.Sequence, Sealed: m.Data})
	}
	if seq >= first {
		older = seq + 1
	}
	return records, older, nil
}

// Remove removes records that were not replaced meanwhile. Those of STATES, which may
// tell of a forgotten vehicle, are overwritten on the disk. Of other streams the account
// may only purge.
func (e *Engine) Remove(ctx context.Context, stream string, records []store.Record) error {
	if len(records) == 0 {
		return nil
	}
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	for _, r := range records {
		if stream == codec.States {
			err = s.SecureDeleteMsg(ctx, r.Seq)
		} else {
			err = s.Purge(ctx, jetstream.WithPurgeSubject(r.Subject), jetstream.WithPurgeSequence(r.Seq+1))
		}
		if err != nil && !noSuchMessage(err) {
			return err
		}
	}
	return nil
}

// noSuchMessage reports whether a message could not be removed because it is
// gone. The client library keeps no more of the answer than its text.
func noSuchMessage(err error) bool {
	if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return false
	}
	return strings.Contains(err.Error(), "no message found") || strings.Contains(err.Error(), "err_code=10043") // no such sequence
}

// End tells where a stream ends.
func (e *Engine) End(ctx context.Context, stream string) (store.End, error) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return store.End{}, err
	}
	info := s.CachedInfo()
	return store.End{Last: info.State.LastSeq, Made: info.Created.UnixNano()}, nil
}

// Feed follows a stream. That of SOURCES brings the tombstones, for which
// AwaitTombstones waits.
func (e *Engine) Feed(stream string, apply func(store.Record) error) store.Feed {
	f := newFeed(e, stream)
	f.apply = apply
	if stream == codec.Sources {
		e.stones.Store(f)
	}
	return f
}

// Erased does nothing: NATS compacts its files when it likes.
func (e *Engine) Erased(context.Context) error { return nil }

// ErasedWithin cannot tell when NATS compacts its files.
func (e *Engine) ErasedWithin(context.Context) (d time.Duration, ok bool, err error) {
	return 0, false, nil
}

// TelemetrySince is when the oldest telemetry was stored, or now if there is none.
func (e *Engine) TelemetrySince(ctx context.Context) (time.Time, error) {
	s, err := e.js.Stream(ctx, codec.Telemetry)
	if err != nil {
		return time.Time{}, err
	}
	info := s.CachedInfo()
	if info.State.Msgs == 0 {
		return info.TimeStamp, nil
	}
	return info.State.FirstTime, nil
}
