package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/carstate/internal/periodic"
)

const changePause = 5 * time.Millisecond

// Change replaces the current record of a subject by compare-and-set, and returns the sequence of
// the new one. It calls change with the current record, whose Seq is 0 if there is none. The writes
// that change returns are stored in one batch; the last must be the new record of the subject, and
// its Expect is set here. Without writes, nothing is stored.
//
//   - After [ErrConflict], from the engine or from change, it reads the record and calls change again.
//   - If no response arrives, it reads the record to find out whether the writes were stored, and
//     sends the same ones again if not.
//   - After patience, it returns the engine's error, and any other error at once. If a response is
//     missing or ctx has ended, the writes may be stored.
func Change(
	ctx context.Context, r Records, patience time.Duration, stream, subject string,
	change func(is Record) ([]Write, error),
) (seq uint64, err error) {
	for until := time.Now().Add(patience); ; {
		seq, err = attempt(ctx, r, until, stream, subject, change)
		if !errors.Is(err, ErrConflict) || time.Now().After(until) {
			return seq, err
		}
		if err := periodic.Pause(ctx, changePause); err != nil {
			return 0, err
		}
	}
}

func attempt(
	ctx context.Context, r Records, until time.Time, stream, subject string, change func(is Record) ([]Write, error),
) (seq uint64, err error) {
	is, err := r.Last(ctx, stream, subject)
	if err != nil {
		return 0, err
	}
	is.Subject = subject
	writes, err := change(is)
	if err != nil {
		return 0, err
	}
	if len(writes) == 0 {
		return is.Seq, nil
	}
	last := &writes[len(writes)-1]
	last.Expect, last.Expected = is.Seq, true
	for lost := false; ; {
		seq, err = r.Store(ctx, stream, writes)
		// The writes whose response was lost may be what conflicts with the same ones now.
		lost = lost || errors.Is(err, context.DeadlineExceeded)
		if err == nil || !lost || ctx.Err() != nil || time.Now().After(until) {
			return seq, err
		}
		if err := periodic.Pause(ctx, changePause); err != nil {
			return 0, err
		}
		is, failed := r.Last(ctx, stream, subject)
		switch {
		case failed != nil:
			return 0, fmt.Errorf("%w; then: %w", err, failed)
		case is.Seq == last.Expect: // not stored: they are sent again
		case bytes.Equal(is.Sealed, last.Record):
			return is.Seq, nil
		default:
			return 0, ErrConflict
		}
	}
}
