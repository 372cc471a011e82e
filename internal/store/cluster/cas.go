package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"carstate/internal/store"
)

// changeAgain is the pause between two tries of changeRecord.
const changeAgain = 5 * time.Millisecond

// changeRecord replaces the last record of a subject by compare-and-set, and returns
// the sequence of the record that is there then. change gets the present record, whose
// sequence is 0 if there is none, and returns what to store in one batch, with the new
// record last. If it returns nothing, the record stays.
//
// The same policy holds for every record:
//   - On a conflict, or if change returns errSetChanged, change runs again with the
//     record that is there then.
//   - If an answer was lost, the record shows whether the write was stored. If it was
//     not, the same write is sent again.
//   - Both are repeated for Patience.Store. Then a conflict is [store.ErrConflict], and
//     of a lost answer nobody knows.
//   - Any other error, and the end of the context, is returned at once.
func (e *Engine) changeRecord(ctx context.Context, stream, subject string, change func(is record) ([]write, error)) (seq uint64, err error) {
	var writes []write
	var lost error // why the answer to writes did not come
	for until := time.Now().Add(e.config.Patience.Store); ; {
		body, rev, err := e.lastRecord(ctx, stream, subject)
		if err != nil {
			if lost != nil {
				err = fmt.Errorf("%w, and then %w", lost, err)
			}
			return 0, err
		}
		if lost == nil || rev != writes[len(writes)-1].expect {
			if lost != nil && rev != 0 && bytes.Equal(body, bodyOf(writes[len(writes)-1])) {
				return rev, nil
			}
			lost = nil
			writes, err = change(record{subject: subject, body: body, seq: rev})
			if err == nil && len(writes) == 0 {
				return rev, nil
			}
		}
		sent := err == nil
		if sent {
			last := &writes[len(writes)-1]
			last.expect, last.expected = rev, true
			seq, err = e.storeBatch(ctx, stream, writes)
		}
		switch {
		case err == nil:
			return seq, nil
		case conflict(err), errors.Is(err, errSetChanged):
			err = fmt.Errorf("%w: %w", store.ErrConflict, err)
		case sent && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && e.storing.Err() == nil:
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
func bodyOf(w write) []byte { return w.record[1 : len(w.record)-crc32.Size] }
