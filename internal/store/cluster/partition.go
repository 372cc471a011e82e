package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

type Partition struct {
	e      *Engine
	number int
	owner  store.Owner
	took   cursor // as of Take
	end    uint64
	// If the partition is folded again from its beginning, rewound is when its newest commit was
	// stored. States may be as new as that, so that older commits count as stored then: otherwise,
	// the states would seem to be from the future.
	rewound time.Time

	next uint64
	sub  *subscription // nil while the partition is not read

	saving sync.Mutex // held during Save; guards the fields below
	cursor cursor
	rev    uint64 // of the cursor's record; the fencing token

	owned     context.Context // ends with Close, and when another process has taken the partition
	lose      context.CancelFunc
	answering sync.WaitGroup
	answers   outgoing
	folded    atomic.Uint64 // telemetry up to here is folded
	told      uint64        // the value of folded that sendAnswers sent last
}

func (e *Engine) Take(
	ctx context.Context, p int, name string, owner store.Owner, free func(holder string) bool,
) (store.Partition, error) {
	t := &Partition{e: e, number: p, owner: owner}
	t.owned, t.lose = context.WithCancel(context.Background())
	var err error
	t.rev, err = e.changeCursor(ctx, p, func(c *cursor) (bool, error) {
		if !free(c.Owner) {
			return false, store.ErrHeld
		}
		s, err := e.js.Stream(ctx, e.TelemetryStream(p))
		if err != nil {
			return false, err
		}
		info := s.CachedInfo()
		if isReplaced(info, c.Made, c.Next) {
			// The stream is folded from its beginning, with the states of the last checkpoint.
			c.Next, c.Made = 1, info.Created.UnixNano()
			for i := range c.Checkpoints {
				c.Checkpoints[i].Seq, c.Checkpoints[i].Replaced = 0, true
			}
		}
		if n := len(c.Checkpoints); n > 0 && c.Checkpoints[n-1].Replaced {
			t.rewound = info.State.LastTime
		}
		c.Owner = name
		c.Generation++
		t.cursor = *c
		return true, nil
	})
	if err == nil {
		// The former owner confirms no drop of a state from now on, so the tombstones of those that
		// it confirmed are stored.
		err = e.AwaitTombstones(ctx)
	}
	if err == nil {
		var last store.Record
		if last, err = e.Last(ctx, e.TelemetryStream(p), codec.TelemetrySubject(p)); last.Seq != 0 {
			t.end, err = last.Seq, nil // Next says whether it can be decoded
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot take partition %d: %w", p, err)
	}
	t.took, t.next = t.cursor, t.cursor.Next
	t.folded.Store(t.next - 1)
	e.views[p].taken.Store(t)
	return t, nil
}

// If a newer version wrote the cursor, the owner is unknown: Release returns an error if this
// process has taken p and not released it.
func (e *Engine) Release(ctx context.Context, p int, name string) error {
	_, err := e.changeCursor(ctx, p, func(c *cursor) (bool, error) {
		owns := c.Owner == name
		c.Owner = ""
		return owns, nil
	})
	if err == nil {
		e.views[p].taken.Store(nil)
	} else if e.views[p].taken.Load() == nil && codec.IsNewer(err) {
		return nil
	}
	return err
}

func (e *Engine) Folding() map[int]bool {
	owned := make(map[int]bool)
	for p := range e.views {
		if t := e.views[p].taken.Load(); t != nil && t.owned.Err() == nil {
			owned[p] = true
		}
	}
	return owned
}

// isReplaced reports whether the stream was created again, or has lost its newest commits, as by a
// power cut. New commits then get sequences below next, and would be skipped.
func isReplaced(info *jetstream.StreamInfo, made int64, next uint64) bool {
	return info.State.LastSeq+1 < next || info.Created.UnixNano() != made
}

func (t *Partition) Stored() (all []store.Checkpoint, newest uint64) {
	return t.took.Checkpoints, t.end
}

// Trim removes only telemetry before the cursor, so Seek moves the cursor back if it reads an older
// checkpoint.
func (t *Partition) Seek(ctx context.Context, c store.Checkpoint) error {
	seq := c.Seq
	t.saving.Lock()
	defer t.saving.Unlock()
	if next := t.cursor; seq+1 < next.Next {
		next.Next = seq + 1
		if err := t.write(ctx, &next); err != nil {
			return err
		}
	}
	s, err := t.e.js.Stream(ctx, t.e.TelemetryStream(t.number))
	if err != nil {
		return err
	}
	if last := len(t.took.Checkpoints) - 1; last >= 0 && (c.Number == 0 && t.took.Checkpoints[0].Restored ||
		seq < t.took.Checkpoints[last].Seq && seq+1 < s.CachedInfo().State.FirstSeq) {
		return fmt.Errorf("%w: the telemetry since %d, from which partition %d could be folded again, is no longer stored: "+
			"restore a backup", codec.ErrDamaged, seq, t.number)
	}
	t.unsubscribe()
	t.next = seq + 1
	return nil
}

// The error is [store.ErrReplaced] if isReplaced, and [codec.IsNewer] if a newer version wrote the
// commit.
func (t *Partition) Next(ctx context.Context) (store.Group, error) {
	t.folded.Store(t.next - 1) // the caller has folded what Next returned before
	m, err := t.nextMessage(ctx)
	if err != nil {
		return store.Group{}, err
	}
	g := store.Group{Seq: m.seq(), Stored: m.Timestamp}
	if g.Stored.Before(t.rewound) {
		g.Stored = t.rewound
	}
	body, err := unpackCommit(m)
	if err == nil {
		g.Samples = make([]vehicle.Sample, 0, len(body)/engine.UsualSampleBytes+1)
		err = codec.DecodeSamples(body, func(x vehicle.Sample) { g.Samples = append(g.Samples, x) })
	}
	if err != nil {
		newer := t.e.config.Newer.Note(codec.Telemetry, err)
		err = fmt.Errorf("%s: record %d: %w", t.e.TelemetryStream(t.number), g.Seq, err)
		if !newer {
			t.e.fail(err)
		}
		return store.Group{}, err
	}
	t.next = g.Seq + 1
	return g, nil
}

func (t *Partition) nextMessage(ctx context.Context) (message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.owned, cancel)()
	for t.owned.Err() == nil {
		if t.sub == nil {
			sub, err := t.e.subscribe(t.e.TelemetryStream(t.number), requestTimeout, nats.StartSequence(t.next),
				nats.ConsumerFilterSubjects(codec.TelemetrySubject(t.number)))
			if err != nil {
				return message{}, err
			}
			t.sub = sub
		}
		m, err := t.sub.receive(ctx)
		switch {
		case err != nil && t.owned.Err() == nil:
			if ctx.Err() != nil {
				return message{}, ctx.Err()
			}
			lost := errors.Is(err, errConsumerLost)
			if lost {
				t.unsubscribe()
			}
			if replaced := t.checkSubscription(ctx); replaced != nil {
				return message{}, replaced
			}
			if !lost && !errors.Is(err, context.DeadlineExceeded) { // A silent subscription goes on.
				return message{}, err
			}
		// The client library may restart at the beginning of the stream.
		case err == nil && m.seq() >= t.next:
			return m, nil
		}
	}
	return message{}, t.fenced()
}

func (t *Partition) fenced() error { return fmt.Errorf("partition %d: %w", t.number, store.ErrFenced) }

// checkSubscription closes a subscription that should have delivered a commit; nextMessage then
// subscribes again. It does nothing if NATS does not answer: the subscription recovers by itself.
func (t *Partition) checkSubscription(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := t.e.js.Stream(ctx, t.e.TelemetryStream(t.number))
	if err != nil {
		return nil
	}
	if info := s.CachedInfo(); isReplaced(info, t.took.Made, t.next) {
		return fmt.Errorf("partition %d: %w: %s was read up to %d and now ends at %d", t.number, store.ErrReplaced,
			info.Config.Name, t.next-1, info.State.LastSeq)
	}
	m, err := firstCommit(ctx, s, t.number, t.next)
	if err != nil || m == nil || t.sub == nil {
		return nil
	}
	if waiting, _, err := t.sub.Pending(); err == nil && waiting > 0 {
		return nil
	}
	t.e.config.Log.Warn("resubscribing to a partition", "partition", t.number, "waiting_since", m.Time)
	t.unsubscribe()
	return nil
}

func (t *Partition) unsubscribe() {
	if t.sub != nil {
		t.sub.Unsubscribe()
		t.sub = nil
	}
}

// A piece is stored only if the cursor has the revision that this process has written, so a former
// owner replaces no piece of its successor.
func (t *Partition) Save(
	ctx context.Context, c store.Checkpoint, pieces iter.Seq[store.Piece], erase bool,
) (store.Checkpoint, error) {
	t.saving.Lock()
	defer t.saving.Unlock()
	start := time.Now()
	if c.Number == 0 {
		pieces = func(func(store.Piece) bool) {}
	}
	for piece := range pieces {
		w := c.Seal(t.number, c.Pieces, piece)
		err := t.retry(ctx, func() error {
			if t.e.room.Add(-int64(len(w.Record))) < 0 {
				return errors.New("the stream STATES is nearly full, and would drop its oldest record: " +
					"raise its limit (nats stream edit STATES --max-bytes)")
			}
			w.Expect, w.Expected = t.rev, true
			_, err := t.e.storeIf(ctx, codec.States, codec.CursorSubject(t.number), []store.Write{w})
			if errors.Is(err, store.ErrConflict) {
				err = cmp.Or(t.write(ctx, nil), err)
			}
			return err
		})
		if err != nil {
			return c, err
		}
		c.Add(piece)
	}
	next, dropped := t.cursor, []store.Checkpoint(nil)
	if c.Number != 0 {
		next.Next = c.Seq + 1
		next.Checkpoints, dropped = store.AddCheckpoint(next.Checkpoints, c, erase)
	}
	if err := t.retry(ctx, func() error { return t.write(ctx, &next) }); err != nil || c.Number == 0 {
		return c, err
	}
	t.e.metrics.Checkpoint(c.Bytes, time.Since(start))
	return c, c.ClearOld(ctx, t.e, t.rev, t.number, dropped, erase)
}

func (t *Partition) retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, store.ErrFenced):
			return err
		case t.owned.Err() != nil:
			return t.fenced()
		}
		t.e.warned.fold.Log(t.e.config.Log, "cannot store a checkpoint yet; will retry", "partition", t.number, "error", err)
		if err := periodic.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// The caller of write holds saving. With next, it replaces the cursor.
func (t *Partition) write(ctx context.Context, next *cursor) error {
	rev, err := t.check(ctx, next)
	if err == nil {
		t.rev = rev
		if next != nil {
			t.cursor = *next
		}
	}
	return err
}

// check returns the revision of the cursor if this process owns the partition. With next, it first
// replaces the cursor.
func (t *Partition) check(ctx context.Context, next *cursor) (rev uint64, err error) {
	rev, err = t.e.changeCursor(ctx, t.number, func(c *cursor) (bool, error) {
		if c.Owner != t.took.Owner || c.Generation != t.took.Generation {
			return false, t.fenced()
		}
		if next != nil {
			*c = *next
		}
		return next != nil, nil
	})
	if codec.IsNewer(err) {
		err = fmt.Errorf("%w: %w", t.fenced(), err)
	}
	if errors.Is(err, store.ErrFenced) {
		t.lose()
	}
	return rev, err
}

func (t *Partition) Close() {
	t.send(false)
	t.lose()
	t.answering.Wait()
	t.unsubscribe()
}

func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

func (e *Engine) Unfolded() *store.Unfolded { return e.unfolded }

// AwaitTombstones waits until this process has every tombstone that is stored now. The error is
// [store.ErrReplaced] if its tombstones are of another stream. Without a RecordStore, it needs
// none.
func (e *Engine) AwaitTombstones(ctx context.Context) error {
	if err := e.Alive(); err != nil {
		return err // the tombstones may be of a replaced stream
	}
	f := e.tombstoneFeed.Load()
	if f == nil {
		return nil
	}
	s, err := e.js.Stream(ctx, codec.Sources)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	if err := f.Wait(ctx, info.State.LastSeq); err != nil {
		return err
	}
	if f.created.Load() != info.Created.UnixNano() {
		return fmt.Errorf("%w: this node's tombstones are of another stream %s", store.ErrReplaced, codec.Sources)
	}
	return nil
}
