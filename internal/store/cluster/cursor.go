package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// cursor says how far a partition is folded and by whom. It is stored with the
// states that it stands for, in one atomic batch, so that they can never
// disagree.
type cursor struct {
	Owner      string `json:"owner"`
	Generation uint64 `json:"generation"` // grows with each change of hands
	Next       uint64 `json:"next"`       // sequence in TELEMETRY of the next commit to fold
	Made       int64  `json:"made"`       // when the TELEMETRY that Next counts in was made, Unix ns
	// Forgotten is the place in SOURCES of the newest tombstone of the
	// partition: who folds it must have seen that one.
	Forgotten uint64 `json:"forgotten,omitempty"`
	// ForgottenIn is when the SOURCES that Forgotten counts in was made, Unix ns;
	// 0: before this was noted.
	ForgottenIn int64 `json:"forgotten_in,omitempty"`
	// Fences counts how often a node that does not fold made the owner take the
	// partition again.
	Fences uint64 `json:"fences,omitempty"`

	newer bool // a newer version wrote it; nothing else of it is known
}

// readCursor returns the cursor of a partition and its revision; zeros if it
// was never folded.
func (c *conn) readCursor(ctx context.Context, p int) (is cursor, rev uint64, err error) {
	r, err := c.Last(ctx, codec.States, codec.CursorSubject(p))
	if err == nil {
		is, err = decodeCursor(r, p)
	}
	return is, r.Seq, err
}

// decodeCursor returns the zero cursor if there is no record.
func decodeCursor(is store.Record, p int) (c cursor, err error) {
	if is.Seq != 0 && json.Unmarshal(is.Body, &c) != nil {
		return cursor{}, fmt.Errorf("%w: the cursor of partition %d", codec.ErrDamaged, p)
	}
	return c, nil
}

// write is what stores the cursor of a partition in place of the record at rev.
func (c cursor) write(p int, rev uint64) store.Write {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	subject := codec.CursorSubject(p)
	return store.Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, text...)), Expect: rev, Expected: true}
}

// readCursors returns the cursors of all partitions, zeros where there is none and newer set
// where a newer version wrote it, by
// few questions to any server. They may be older than what the leader has, by no
// more than this node's last write: what was folded since counts as not folded.
func (c *conn) readCursors(ctx context.Context, partitions int) ([]cursor, error) {
	cursors := make([]cursor, partitions)
	subjects := make([]string, partitions)
	for p := range subjects {
		subjects[p] = codec.CursorSubject(p)
	}
	for part := range slices.Chunk(subjects, store.MaxLoad) {
		// There is always an answer, because the heartbeat is there.
		part = append(slices.Clip(part), codec.HeartbeatSubject(codec.States))
		records, err := c.awaitRecords(ctx, codec.States, part, c.newest.Load())
		if err != nil {
			return nil, fmt.Errorf("the engine cannot be asked for the cursors: %w", err)
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
