package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// changeAgain is the pause between two tries of Change.
const changeAgain = 5 * time.Millisecond

// Change replaces the last record of a subject by compare-and-set, and returns the
// sequence of the record that is there then. change gets the present record, whose
// sequence is 0 if there is none, and returns what to store in one batch, with the new
// record last. If it returns nothing, the record stays.
//
// The same policy holds for every record:
//   - After [ErrConflict], of the engine or of change, change runs again with the record
//     that is there then.
//   - If an answer was lost, the record shows whether the write was stored. If it was
//     not, the same write is sent again.
//   - Both are repeated for as long as patience says, which is [Patience.Store]. Then a
//     conflict is [ErrConflict], and of a lost answer nobody knows.
//   - Any other error, and the end of the context, is returned at once.
func Change(ctx context.Context, r Records, patience time.Duration, stream, subject string, change func(is Record) ([]Write, error)) (seq uint64, err error) {
	var writes []Write
	var lost error // why the answer to writes did not come
	for until := time.Now().Add(patience); ; {
		is, err := r.Last(ctx, stream, subject)
		if err != nil {
			if lost != nil {
				err = fmt.Errorf("%w, and then %w", lost, err)
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
		select {
		case <-time.After(changeAgain):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// bodyOf is the body of a sealed record.
func bodyOf(w Write) []byte { return w.Record[1 : len(w.Record)-crc32.Size] }

// storeMany stores writes of different subjects that do not belong together, each if its
// expectation holds, and returns the places of those whose expectation failed, in order.
// What was stored although its answer was lost is one of them. Writes without an answer
// are sent until there is one. After any other error but a conflict they are sent again
// for patience.
func storeMany(ctx context.Context, r Records, patience time.Duration, stream string, writes []Write) (conflicts []int, err error) {
	if len(writes) == 0 {
		return nil, nil
	}
	for until := time.Now().Add(patience); ; {
		_, err = r.Store(ctx, stream, writes)
		switch {
		case err == nil:
			return nil, nil
		case errors.Is(err, ErrConflict):
			return storeHalves(ctx, r, patience, stream, writes)
		case !errors.Is(err, context.DeadlineExceeded) && time.Now().After(until):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(manyAgain):
		}
	}
}

// manyAgain is how long storeMany rests after an error.
const manyAgain = 100 * time.Millisecond

// storeHalves is storeMany of writes of which one was refused. The engine does not say
// which one it was: halves find it soon.
func storeHalves(ctx context.Context, r Records, patience time.Duration, stream string, writes []Write) (conflicts []int, err error) {
	half := len(writes) / 2
	if half == 0 {
		return []int{0}, nil
	}
	conflicts, err = storeMany(ctx, r, patience, stream, writes[:half])
	if err != nil {
		return conflicts, err
	}
	more, err := storeMany(ctx, r, patience, stream, writes[half:])
	for _, i := range more {
		conflicts = append(conflicts, half+i)
	}
	return conflicts, err
}
