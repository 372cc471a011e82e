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
	var writes []Write
	var lost error // error of the last attempt, if no response arrived
	for until := time.Now().Add(patience); ; {
		is, err := r.Last(ctx, stream, subject)
		if err != nil {
			if lost != nil {
				err = fmt.Errorf("%w; then: %w", lost, err)
			}
			return 0, err
		}
		if lost == nil || is.Seq != writes[len(writes)-1].Expect {
			if lost != nil && is.Seq != 0 && bytes.Equal(is.Sealed, writes[len(writes)-1].Record) {
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
