package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// changePause is the pause between two attempts of Change.
const changePause = 5 * time.Millisecond

// Change replaces the last record of a subject by compare-and-set, and returns the sequence of the
// record that is then stored. The function change receives the current record, whose sequence is 0
// if there is none. It returns the writes to store in one batch, with the new record last. If it
// returns no writes, the record is left unchanged.
//
// The same retry policy applies to every record:
//   - After [ErrConflict], from the engine or from the function change, Change calls the function
//     again with the record that is then stored.
//   - If the engine's response was lost, Change reads the record to find out whether the write
//     was stored. If it was not, Change sends the same write again.
//   - Conflicts and lost responses are retried until patience has passed; callers pass
//     [Patience.Store]. After that, Change returns [ErrConflict] for a conflict. After a lost
//     response, it is unknown whether the write was stored.
//   - Change returns any other error, and the end of the context, at once.
func Change(
	ctx context.Context, r Records, patience time.Duration, stream, subject string,
	change func(is Record) ([]Write, error),
) (seq uint64, err error) {
	var writes []Write
	var lost error // why no response to writes arrived
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
		select {
		case <-time.After(changePause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// bodyOf returns the body of the sealed record in w.
func bodyOf(w Write) []byte { return w.Record[1 : len(w.Record)-crc32.Size] }

// storeMany stores writes of different subjects that are independent of each other: each write is
// stored if its own expectation holds. The result conflicts has the indexes of the writes whose
// expectation failed, in ascending order. If no response arrives, storeMany repeats the writes
// until one arrives; a write that had been stored is then among the conflicts. After other errors,
// it retries until patience has passed.
func storeMany(
	ctx context.Context, r Records, patience time.Duration, stream string, writes []Write,
) (conflicts []int, err error) {
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
		case <-time.After(storeManyPause):
		}
	}
}

// storeManyPause is the pause of storeMany after an error.
const storeManyPause = 100 * time.Millisecond

// storeHalves continues storeMany after the engine has refused one of the writes. The engine does
// not say which one, so storeHalves finds it by bisection.
func storeHalves(
	ctx context.Context, r Records, patience time.Duration, stream string, writes []Write,
) (conflicts []int, err error) {
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
