package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// Scan calls do with the last record of each subject that matches one of the patterns.
// Writers may run concurrently: for a subject that changes during the scan, do gets the newer record
// as well, or instead.
func (e *Engine) Scan(ctx context.Context, stream string, patterns []string, do func(store.Record) error) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	f := newFeed(e, stream)
	f.filters, f.caughtUp = patterns, stop
	var failed error
	last := uint64(0)
	f.apply = func(r store.Record) error {
		if reading.Err() != nil {
			return nil
		}
		if failed = do(r); failed != nil {
			stop()
		}
		last = r.Seq
		return nil
	}
	if err := f.run(reading); err != nil {
		return err
	}
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	return e.scanTail(ctx, stream, f.readFrom(), last+1, func(r store.Record) error {
		for _, pattern := range patterns {
			if codec.Matches(pattern, r.Subject) {
				return do(r)
			}
		}
		return nil
	})
}

const (
	// tailRecords is how many records of a stream's end are asked for at once, and
	// tailBytes how many bytes. Nothing is stored while the engine answers. Where more
	// come meanwhile, twice as many are asked for the next time, up to tailMost times as
	// many.
	tailRecords = 250
	tailBytes   = 4 << 20
	tailMost    = 16
	// tailAgain is how long to wait where a server has nothing of what others have.
	tailAgain = 10 * time.Millisecond
)

// scanTail calls do with the records of a stream, created at made, from sequence next
// until it has read past the end of the stream as of a single moment. A record that is
// replaced during the scan is read again later in the stream, so none is missed. It
// retries while the engine is unavailable.
func (e *Engine) scanTail(ctx context.Context, stream string, made time.Time, next uint64, do func(store.Record) error) error {
	for times := 1; ; {
		records, end, err := e.readPage(ctx, stream, made, next, times)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, codec.ErrDamaged), errors.Is(err, codec.ErrNewer), errors.Is(err, store.ErrReplaced):
			e.fail(err)
			return err
		}
		for _, r := range records {
			if err := do(r); err != nil {
				return err
			}
			next = r.Seq + 1
		}
		if end {
			return nil
		}
		rest := tailAgain
		if err != nil {
			rest, times = feedAgain, 1
		} else if len(records) > 0 {
			times = min(2*times, tailMost)
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}

// readPage reads records from sequence next on, at most times*tailRecords of them. end
// reports whether these were all the records there were at one moment.
func (e *Engine) readPage(ctx context.Context, stream string, made time.Time, next uint64, times int) (records []store.Record, end bool, err error) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return nil, false, err
	}
	// No server of which we have read so far knew more. One that knows less does not
	// have what others had replaced by then. If the last record there was has been
	// removed since, a heartbeat comes soon.
	info := s.CachedInfo()
	known := info.State.LastSeq
	if !info.Created.Equal(made) {
		return nil, false, fmt.Errorf("%w: %s", store.ErrReplaced, stream)
	}
	records, end, err = e.requestPage(ctx, stream, next, times)
	if n := len(records); n > 0 {
		next = records[n-1].Seq + 1
	}
	return records, end && next > known, err
}

// requestPage asks any server for the page of [Engine.readPage]. all reports whether that
// server had no further records at one moment.
func (e *Engine) requestPage(ctx context.Context, stream string, next uint64, times int) (records []store.Record, all bool, err error) {
	messages, end, err := e.directGet(ctx, stream, struct {
		Seq   uint64 `json:"seq"`
		Batch int    `json:"batch"`
		Bytes int    `json:"max_bytes"`
	}{next, times * tailRecords, times * tailBytes})
	if errors.Is(err, errNoRecords) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, m := range messages {
		r := store.Record{Subject: m.Header.Get("Nats-Subject"), Sealed: m.Data}
		if r.Seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err == nil {
			r.Body, err = codec.Unseal(r.Subject, m.Data)
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: record %s: %w", stream, m.Header.Get("Nats-Sequence"), err)
		}
		records = append(records, r)
	}
	return records, len(messages) < times*tailRecords && end.Get("Nats-Num-Pending") == "0", nil
}
