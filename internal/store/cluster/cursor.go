package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// cursor is the record of one partition that says up to which sequence the partition's telemetry is
// folded into states, and which node owns the partition. A commit of states ends with the cursor,
// so all states up to its sequence are stored.
type cursor struct {
	Owner      string `json:"owner"`
	Generation uint64 `json:"generation"` // increases with each change of owner
	Next       uint64 `json:"next"`       // sequence in TELEMETRY of the next commit to fold
	Made       int64  `json:"made"`       // when the TELEMETRY stream of Next was created, Unix ns
	// Forgotten is the sequence, in the stream SOURCES, of the newest tombstone of a vehicle in the
	// partition. (SOURCES also contains all tombstones.) An owner must have applied that tombstone
	// before it folds.
	Forgotten uint64 `json:"forgotten,omitempty"`
	// ForgottenIn is the creation time, in Unix ns, of the SOURCES stream to which Forgotten
	// refers. 0 means that the cursor was written before this field existed.
	ForgottenIn int64 `json:"forgotten_in,omitempty"`
	// Fences counts the calls of Fence. After each call, the owner must take the partition again.
	Fences uint64 `json:"fences,omitempty"`

	newer bool // a newer version wrote the record; the other fields are unknown
}

// decodeCursor decodes the cursor of partition p from its record. It returns the zero cursor if
// there is no record (is.Seq is 0), because no node has ever taken or fenced the partition. If the
// record cannot be decoded, the error is [codec.ErrDamaged].
func decodeCursor(is store.Record, p int) (c cursor, err error) {
	if is.Seq != 0 && json.Unmarshal(is.Body, &c) != nil {
		return cursor{}, fmt.Errorf("%w: the cursor of partition %d", codec.ErrDamaged, p)
	}
	return c, nil
}

// write returns a write that replaces the cursor of partition p. The write fails with
// [store.ErrConflict] if the stored cursor does not have the revision rev any more.
func (c cursor) write(p int, rev uint64) store.Write {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // cannot happen: a struct of strings and numbers
	}
	subject := codec.CursorSubject(p)
	record := codec.Seal(subject, append([]byte{0}, text...))
	return store.Write{Subject: subject, Record: record, Expect: rev, Expected: true}
}

// readCursors returns the cursors of all partitions. It sends one request for each
// [store.BatchStates] partitions, which any server may answer, and repeats it until an answer is
// complete. If the context ends first, or if a cursor cannot be decoded, it returns an error. A
// partition without a cursor has the zero value. If a newer version wrote a cursor, only newer is
// set in it. The result includes every write of this process, but may lack the latest write of
// another node. In that case, some samples that the other node has folded seem not to be folded.
func (c *conn) readCursors(ctx context.Context, partitions int) ([]cursor, error) {
	cursors := make([]cursor, partitions)
	subjects := make([]string, partitions)
	for p := range subjects {
		subjects[p] = codec.CursorSubject(p)
	}
	for part := range slices.Chunk(subjects, store.BatchStates) {
		// The record of the heartbeat always exists, so there is always an answer.
		part = append(slices.Clip(part), codec.HeartbeatSubject(codec.States))
		records, err := c.awaitRecords(ctx, codec.States, part, c.newest.Load())
		if err != nil {
			return nil, fmt.Errorf("cannot read the cursors from NATS: %w", err)
		}
		for _, r := range records {
			p, ok := codec.PartitionOfCursor(r.Subject)
			if !ok || p >= len(cursors) {
				continue
			}
			if r.Body, err = codec.Unseal(r.Subject, r.Sealed); err == nil {
				cursors[p], err = decodeCursor(r, p)
			} else if codec.IsNewer(err) {
				cursors[p], err = cursor{newer: true}, nil
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return cursors, nil
}
