package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

type cursor struct {
	Owner      string `json:"owner"`
	Generation uint64 `json:"generation"` // increases with each change of owner
	Next       uint64 `json:"next"`       // first sequence of telemetry that the last checkpoint does not cover
	Made       int64  `json:"made"`       // when the stream of Next was created, Unix ns
	// Checkpoints are those that are kept, oldest first.
	Checkpoints []store.Checkpoint `json:"checkpoints,omitempty"`

	newer bool // a newer version wrote the record; the other fields are unknown
}

func decodeCursor(is store.Record, p int) (c cursor, err error) {
	if is.Seq != 0 && json.Unmarshal(is.Body, &c) != nil {
		return cursor{}, fmt.Errorf("%w: the cursor of partition %d", codec.ErrDamaged, p)
	}
	return c, nil
}

func (e *Engine) changeCursor(
	ctx context.Context, p int, change func(c *cursor) (changed bool, err error),
) (rev uint64, err error) {
	subject := codec.CursorSubject(p)
	rev, err = store.Change(ctx, e, e.config.Patience.Store, codec.States, subject,
		func(is store.Record) ([]store.Write, error) {
			c, err := decodeCursor(is, p)
			changed := false
			if err == nil {
				changed, err = change(&c)
			}
			if err != nil || !changed {
				return nil, err
			}
			return store.AppendJSON(nil, subject, c)
		})
	e.config.Newer.Note(codec.States, err)
	return rev, err
}

func (e *Engine) FollowCursors(ctx context.Context, longest time.Duration, caughtUp func()) error {
	defer e.followFolded()()
	filters := []string{"cursor.*", codec.HeartbeatSubject(codec.States)}
	f := &feed{e: e, stream: codec.States, filters: filters, apply: e.noteCursor, longest: longest}
	return f.Run(ctx, func() {
		e.cursorsRead.Store(true)
		caughtUp()
	})
}

// If another process has taken a partition that this one had, or a newer version has written the
// cursor, Next returns [store.ErrFenced].
func (e *Engine) noteCursor(r store.Record) (err error) {
	p, ok := codec.PartitionOfCursor(r.Subject)
	if !ok || p >= e.partitions {
		return nil
	}
	c := cursor{newer: true}
	if !r.Newer {
		if c, err = decodeCursor(r, p); err != nil {
			return err
		}
	}
	e.views[p].cursor.Store(&c)
	if t := e.views[p].taken.Load(); t != nil && (c.newer || c.Generation > t.took.Generation) {
		t.lose()
	}
	return nil
}
