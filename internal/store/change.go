package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"example.org/carstate/internal/periodic"
)

// changePause is the pause between two attempts of Change.
const changePause = 5 * time.Millisecond

// Change replaces the current record of a subject by compare-and-set, and returns the sequence of
// the new record. It calls change with the current record; if there is no record, it passes a
// record with the sequence 0. The writes that change returns are stored in one batch. The last
// write must be the new record of the subject; Change sets Expect and Expected of this write. If
// change returns no writes, nothing is stored, and Change returns the sequence of the current
// record, or 0 if there is none.
//
// The same retry policy applies to every record:
//   - After [ErrConflict], from the storage engine or from change, Change reads the record again
//     and calls change again.
//   - If no response of the storage engine to the writes arrives, Change reads the record to find
//     out whether they were stored. If they were not, Change sends the same writes again.
//   - Change retries conflicts and missing responses until the time patience has passed; callers
//     pass [Patience.Store]. After this time, Change returns [ErrConflict] for a conflict. For a
//     missing response, it returns the engine's error, and it is unknown whether the writes were
//     stored.
//   - Change returns any other error at once, including an error of change. If ctx ends, Change
//     also returns an error at once, although the writes may be stored.
func Change(
	ctx context.Context, r Records, patience time.Duration, stream, subject string,
	change func(is Record) ([]Write, error),
) (seq uint64, err error) {
	var writes []Write
	var lost error // the error of the last attempt without a response
	for until := time.Now().Add(patience); ; {
		is, err := r.Last(ctx, stream, subject)
		if err != nil {
			if lost != nil {
				err = fmt.Errorf("%w; then: %w", lost, err)
			}
			return 0, err
		}
		if lost == nil || is.Seq != writes[len(writes)-1].Expect {
			if lost != nil && is.Seq != 0 && bytes.Equal(is.Body, bodyOf(writes[len(writes)-1])) {
				return is.Seq, nil
			}
			lost = nil
			is.Subject = subject
			writes, err = change(is)
			if err == nil && len(writes) == 0 {
				return is.Seq, nil
			}
		}
		sent := err == nil
		if sent {
			last := &writes[len(writes)-1]
			last.Expect, last.Expected = is.Seq, true
			seq, err = r.Store(ctx, stream, writes)
		}
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, ErrConflict):
		case sent && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			lost = err
		default:
			return 0, err
		}
		if time.Now().After(until) {
			return 0, err
		}
		if err := periodic.Pause(ctx, changePause); err != nil {
			return 0, err
		}
	}
}

// bodyOf returns the body of the sealed record in w.
func bodyOf(w Write) []byte { return w.Record[1 : len(w.Record)-crc32.Size] }

// storeBatch stores all writes or none, as [Records.Store] does. It returns [ErrConflict] at once.
// If no response of the storage engine arrives, storeBatch repeats the writes until a response
// arrives or ctx ends. If the writes were stored although the response was lost, the repeated
// writes have a conflict, because the records now have new sequences. After other errors,
// storeBatch retries until the time patience has passed or ctx ends. When it stops retrying, it
// returns the last error of Records.Store.
func storeBatch(ctx context.Context, r Records, patience time.Duration, stream string, writes []Write) error {
	if len(writes) == 0 {
		return nil
	}
	for until := time.Now().Add(patience); ; {
		_, err := r.Store(ctx, stream, writes)
		switch {
		case err == nil, errors.Is(err, ErrConflict):
			return err
		case !errors.Is(err, context.DeadlineExceeded) && time.Now().After(until):
			return err
		}
		if periodic.Pause(ctx, storeBatchPause) != nil {
			return err
		}
	}
}

// storeBatchPause is the pause of storeBatch after an error.
const storeBatchPause = 100 * time.Millisecond
