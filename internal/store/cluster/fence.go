package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// Forgotten is this node's copy of the tombstones, which a [store.Keeper] feeds.
func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

// Fence notes in a partition's cursor that nobody may fold it without having
// seen the tombstone at seq. A fold under way fails on the cursor's revision.
func (e *Engine) Fence(ctx context.Context, p int, seq uint64) error {
	s, err := e.js.Stream(ctx, codec.Sources)
	if err != nil {
		return err
	}
	made := s.CachedInfo().Created.UnixNano()
	_, err = e.change(ctx, codec.States, codec.CursorSubject(p), func(is store.Record) ([]store.Write, error) {
		c, err := decodeCursor(is, p)
		if err != nil {
			return nil, err
		}
		// Fences grows, so that nobody takes the record for one of their own.
		c.Fences++
		if c.ForgottenIn != 0 && c.ForgottenIn != made {
			c.Forgotten = 0 // it counts in a SOURCES that is no more
		}
		c.Forgotten, c.ForgottenIn = max(c.Forgotten, seq), made
		t := Partition{e: e, number: p, cursor: c}
		return []store.Write{t.cursorWrite(is.Seq)}, nil
	})
	return err
}

// awaitTombstone waits until this node has seen the tombstone at seq of the SOURCES
// that was made at a time; 0: of the present one. What went with another SOURCES,
// or with the end of this one, is not waited for: it will never come.
func (e *Engine) awaitTombstone(ctx context.Context, seq uint64, made int64) error {
	if err := e.Alive(); err != nil {
		return err // the tables are of streams that are no more
	}
	f := e.stones.Load()
	if f == nil || seq == 0 {
		return nil // without a keeper, nobody on this node forgets
	}
	s, err := e.js.Stream(ctx, codec.Sources)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	if made != 0 && made != info.Created.UnixNano() {
		return nil
	}
	if err := f.Wait(ctx, min(seq, info.State.LastSeq)); err != nil {
		return err
	}
	if read := f.readFrom(); !read.Equal(info.Created) {
		return fmt.Errorf("%w: this node's tombstones are of another %s", store.ErrReplaced, codec.Sources)
	}
	return nil
}

// AwaitTombstones waits until this node has seen every tombstone there is.
func (e *Engine) AwaitTombstones(ctx context.Context) error {
	s, err := e.js.Stream(ctx, codec.Sources)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.awaitTombstone(ctx, s.CachedInfo().State.LastSeq, 0)
}

// recall sees whether a record is the cursor of a partition in which a vehicle
// was forgotten since this node took it. Its states at hand are then dropped.
func (e *Engine) recall(r store.Record) {
	p, ok := codec.PartitionOfCursor(r.Subject)
	if !ok {
		return
	}
	taken, ok := e.taken.Load(p)
	if !ok {
		return
	}
	var c cursor
	if t := taken.(*Partition); json.Unmarshal(r.Body, &c) == nil && c.Fences != t.fences {
		t.recall()
	}
}
