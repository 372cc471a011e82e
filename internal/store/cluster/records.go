package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// If a record cannot be decoded, Last returns it without Body, and an error.
func (e *Engine) Last(ctx context.Context, stream, subject string) (store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := e.legacy.GetLastMsg(stream, subject, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return store.Record{}, nil
	}
	if err != nil {
		// The error omits the subject, which may hold a vid.
		return store.Record{}, fmt.Errorf("cannot read a record of %s from NATS: %w", stream, err)
	}
	return unseal(subject, m.Sequence, m.Data)
}

func unseal(subject string, seq uint64, sealed []byte) (store.Record, error) {
	body, err := codec.Unseal(subject, sealed)
	return store.Record{Subject: subject, Body: body, Seq: seq, Sealed: sealed}, err
}

// Any server may answer. If it lags, the newest records come in a later call.
func (e *Engine) ScanFrom(
	ctx context.Context, stream string, from uint64, do func(store.Record) error,
) (next uint64, damaged int, err error) {
	next = max(from, 1)
	for m, err := range e.read(ctx, stream, nats.StartSequence(next)) {
		if err != nil {
			return next, damaged, err
		}
		if m.seq() < next {
			continue // the client library may restart at the beginning of the stream
		}
		next = m.seq() + 1
		r, bad := unseal(m.Subject, m.seq(), m.Data)
		r.Newer = e.config.Newer.Note(stream, bad)
		if bad == nil || r.Newer {
			bad = do(r)
		}
		if bad != nil {
			damaged++
		}
	}
	return next, damaged, nil
}

func (e *Engine) Before(
	ctx context.Context, stream string, before uint64, limit int,
) (records []store.Record, older uint64, err error) {
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
			continue // an operator has deleted the record
		}
		if err != nil {
			return nil, 0, err
		}
		r, err := unseal(m.Subject, m.Sequence, m.Data)
		switch {
		case e.config.Newer.Note(stream, err):
			r.Newer, r.Stored = true, m.Time
		case err != nil:
			return nil, 0, err
		}
		records = append(records, r)
	}
	if seq >= first {
		older = seq + 1
	}
	return records, older, nil
}

func (e *Engine) Remove(ctx context.Context, stream string, records []store.Record) error {
	if len(records) == 0 {
		return nil
	}
	s, err := e.js.Stream(ctx, stream)
	for i := 0; err == nil && i < len(records); i++ {
		r, options := records[i], make([]jetstream.StreamPurgeOpt, 0, 2)
		if options = append(options, jetstream.WithPurgeSubject(r.Subject)); r.Seq != 0 {
			options = append(options, jetstream.WithPurgeSequence(r.Seq+1))
		}
		err = s.Purge(ctx, options...)
	}
	return err
}

// A single write as an ordinary message costs fewer syncs than a batch. In a batch, the last write
// alone may expect a sequence, and it commits the batch. While NATS is processing another write of
// the subject, perhaps an earlier one of this caller, the error is [store.ErrConflict], too.
func (e *Engine) Store(ctx context.Context, stream string, writes []store.Write) (seq uint64, err error) {
	return e.storeIf(ctx, stream, "", writes)
}

const (
	inProgressBackoff = 50 * time.Millisecond
	// error codes of NATS
	wrongLastSequence = 10071
	writeInProgress   = 10164
)

// With subject, Write.Expect is of that subject's record. The client library has no call for atomic
// batches (NATS ADR-50). The server drops batches if a stream has more than 50 open ones, and
// processes those of a stream one at a time.
func (e *Engine) storeIf(ctx context.Context, stream, subject string, writes []store.Write) (seq uint64, err error) {
	if len(writes) > store.MaxBatch {
		return 0, fmt.Errorf("a batch of %d records exceeds the limit of %d", len(writes), store.MaxBatch)
	}
	if len(writes) > 1 {
		select {
		case e.batches <- struct{}{}:
			defer func() { <-e.batches }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
	defer cancel()
	id := rand.Text()
	for i, w := range writes {
		m := &nats.Msg{Subject: w.Subject, Data: w.Record, Header: make(nats.Header, 4)}
		if w.Expected {
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(w.Expect, 10)}
			if subject != "" {
				m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{subject}
			}
		}
		if len(writes) > 1 {
			m.Header["Nats-Batch-Id"] = []string{id}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		}
		if i < len(writes)-1 {
			if err := e.nc.PublishMsg(m); err != nil {
				return 0, err
			}
			continue
		}
		m.Header[jetstream.ExpectedStreamHeader] = []string{stream}
		if len(writes) > 1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
		}
		answer, err := e.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, err
		}
		var ack struct {
			Error    *jetstream.APIError `json:"error"`
			Sequence uint64              `json:"seq"`
		}
		if err := json.Unmarshal(answer.Data, &ack); err != nil {
			return 0, fmt.Errorf("invalid response from NATS: %w", err)
		}
		switch {
		case ack.Error == nil:
			return ack.Sequence, nil
		case ack.Error.ErrorCode == writeInProgress:
			_ = periodic.Pause(ctx, inProgressBackoff) // the caller tries again
			fallthrough
		case ack.Error.ErrorCode == wrongLastSequence:
			return 0, fmt.Errorf("%w: %w", store.ErrConflict, ack.Error)
		}
		return 0, ack.Error
	}
	return 0, nil
}

// The first pass of Scan may miss a record that is replaced meanwhile, so it reads on to where the
// stream ended when that pass did; heartbeats show that it is there. While NATS is unavailable, it
// retries until ctx ends.
func (e *Engine) Scan(ctx context.Context, stream string, patterns []string, do func(store.Record) error) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	apply := func(r store.Record) error {
		if reading.Err() != nil {
			return nil
		}
		if failed = do(r); failed != nil {
			stop()
		}
		return nil
	}
	// This scan observes no heartbeats: another feed does, which maintains this node's copy.
	filters := append(slices.Clip(patterns), codec.HeartbeatSubject(stream))
	f := &feed{e: e, stream: stream, filters: filters, apply: apply, scans: true}
	err := f.Run(reading, stop)
	return cmp.Or(err, failed, ctx.Err())
}
