package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// Partition is a partition that this node folds. It is not safe for concurrent use.
type Partition struct {
	e      *Engine
	number int
	cursor cursor
	rev    uint64    // sequence of the cursor's record, which serves as the fencing token
	next   uint64    // sequence of the first commit that Next has not returned
	stored time.Time // when the samples that Next last returned were stored
	// rewound is set if the partition is folded again from its beginning: when the newest commit
	// was stored then. States may be as new as this, so an older commit does not show that they are
	// from the future.
	rewound time.Time

	closed atomic.Bool
	sub    *subscription // nil while the partition is not read

	recalled context.Context // ends when the partition must be taken again
	recall   context.CancelFunc
}

// Take implements [store.Engine]. It retries conflicts and lost responses as [store.Change] does.
func (e *Engine) Take(
	ctx context.Context, p int, owner string, free func(holder string) bool,
) (store.Partition, error) {
	t := &Partition{e: e, number: p}
	t.recalled, t.recall = context.WithCancel(context.Background())
	rev, err := e.changeCursor(ctx, p, func(c *cursor) (bool, error) {
		if !free(c.Owner) {
			return false, store.ErrHeld
		}
		if err := e.awaitTombstone(ctx, c.Forgotten, c.ForgottenIn); err != nil {
			return false, err
		}
		s, err := e.js.Stream(ctx, codec.Telemetry)
		if err != nil {
			return false, err
		}
		if t.cursor = *c; t.isCursorStale(s) {
			c.Next, t.rewound = 1, s.CachedInfo().State.LastTime
		}
		c.Owner, c.Made = owner, s.CachedInfo().Created.UnixNano()
		c.Generation++
		t.cursor = *c
		return true, nil
	})
	if err != nil {
		e.config.Newer.Note(codec.States, err)
		return nil, fmt.Errorf("cannot take partition %d: %w", p, err)
	}
	t.rev, t.next = rev, t.cursor.Next
	e.taken[p].Store(t)
	return t, nil
}

// Release implements [store.Engine]. If a newer version wrote the cursor, the owner is unknown:
// Release returns an error if this process has taken p and not released it, and otherwise nil.
func (e *Engine) Release(ctx context.Context, p int, owner string) error {
	_, err := e.changeCursor(ctx, p, func(c *cursor) (bool, error) {
		owns := c.Owner == owner
		c.Owner = ""
		return owns, nil
	})
	if err == nil {
		e.taken[p].Store(nil)
	} else if e.taken[p].Load() == nil && codec.IsNewer(err) {
		return nil
	}
	return err
}

// undecodable returns the error for a record that cannot be decoded because of err. Unless a newer
// version wrote the record, the engine fails.
func (e *Engine) undecodable(stream string, seq uint64, err error) error {
	newer := e.config.Newer.Note(stream, err)
	err = fmt.Errorf("%s: record %d: %w", stream, seq, err)
	if !newer {
		e.fail(err)
	}
	return err
}

// isCursorStale reports whether TELEMETRY was re-created after the cursor was written, or has lost
// its newest commits, for example by a power cut in a cluster that does not sync each write. New
// commits then get sequences below the cursor, and would be skipped as if they were folded.
func (t *Partition) isCursorStale(s jetstream.Stream) bool {
	info := s.CachedInfo()
	return info.State.LastSeq+1 < max(t.cursor.Next, t.next) || info.Created.UnixNano() != t.cursor.Made
}

// Next implements [store.Partition]. The error is [store.ErrReplaced] if TELEMETRY was re-created
// or has lost its newest commits, and [codec.IsNewer] if a newer version wrote the commit, or a
// tombstone of one of its vehicles.
func (t *Partition) Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error) {
	m, seq, err := t.nextMessage(ctx)
	if err != nil {
		return 0, nil, err
	}
	body, err := codec.Unseal(m.Subject, m.Data)
	if err == nil {
		samples = make([]vehicle.Sample, 0, len(body)/engine.UsualSampleBytes+1)
		unread := false
		err = codec.DecodeSamples(body, func(x vehicle.Sample) {
			stone, forgotten := t.e.forgotten.Find(x.Vehicle)
			unread = unread || forgotten && stone.Unread
			if !forgotten || !stone.Covers(seq, t.cursor.Made) {
				samples = append(samples, x)
			}
		})
		if err == nil && unread {
			return 0, nil, fmt.Errorf("partition %d: %w: a tombstone of one of its vehicles", t.number, codec.ErrNewer)
		}
	}
	if err != nil {
		return 0, nil, t.e.undecodable(codec.Telemetry, seq, err)
	}
	t.next = seq + 1
	return seq, samples, nil
}

// Stored implements [store.Partition], by the clock of NATS.
func (t *Partition) Stored() time.Time { return t.stored }

// nextMessage waits for the first message with a sequence of at least t.next.
func (t *Partition) nextMessage(ctx context.Context) (*nats.Msg, uint64, error) {
	for {
		if t.sub == nil {
			sub, err := t.e.readTelemetry(codec.TelemetrySubject(t.number), nats.StartSequence(t.next))
			if err != nil {
				return nil, 0, err
			}
			t.sub = sub
		}
		try, cancel := context.WithTimeout(ctx, t.e.config.Timeouts.Stall)
		stop := context.AfterFunc(t.recalled, cancel)
		m, meta, err := t.sub.receive(try)
		silent := err != nil && try.Err() != nil
		stop()
		cancel()
		switch {
		case ctx.Err() != nil && err != nil:
			return nil, 0, ctx.Err()
		case t.recalled.Err() != nil:
			return nil, 0, fmt.Errorf("partition %d: %w", t.number, store.ErrRecalled)
		case err != nil:
			changed := errors.Is(err, errConsumerChanged)
			if changed {
				t.unsubscribe()
			}
			// If silent, either no samples were committed, or the subscription has failed without
			// an error. The client library also gives up a subscription if the stream is gone.
			if replaced := t.checkSubscription(ctx); replaced != nil {
				return nil, 0, replaced
			}
			if !silent && !changed {
				return nil, 0, err
			}
			continue
		}
		// If a consumer breaks before its first message, the client library restarts at the
		// beginning of the stream. A folded message must not be folded again, because that would
		// move the cursor back.
		if meta.Sequence.Stream >= t.next {
			if t.stored = meta.Timestamp; t.stored.Before(t.rewound) {
				t.stored = t.rewound
			}
			return m, meta.Sequence.Stream, nil
		}
	}
}

// checkSubscription checks the subscription of a partition after a silence or an error. It returns
// an error if TELEMETRY was re-created or has lost its newest commits. If the subscription should
// have delivered a commit, it closes it, and nextMessage subscribes again. If NATS does not answer,
// it does nothing, because the subscription recovers by itself.
func (t *Partition) checkSubscription(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := t.e.js.Stream(ctx, codec.Telemetry)
	if err != nil {
		return nil
	}
	if t.isCursorStale(s) {
		return fmt.Errorf("partition %d: %w: %s was read up to %d and now ends at %d", t.number, store.ErrReplaced,
			codec.Telemetry, t.next-1, s.CachedInfo().State.LastSeq)
	}
	m, err := firstCommit(ctx, s, t.number, t.next)
	if err != nil || m == nil || t.sub == nil || t.Waiting() {
		return nil
	}
	t.e.log.Warn("resubscribing to a partition", "partition", t.number, "waiting_since", m.Time)
	t.unsubscribe()
	return nil
}

func (t *Partition) Waiting() bool {
	if t.sub == nil {
		return false
	}
	n, _, err := t.sub.Pending()
	return err == nil && n > 0
}

// Answer does nothing. In a cluster, a state must be stored before it is published to queries.
// Otherwise another node could take the partition and answer from an older state.
func (t *Partition) Answer(vehicle.ID, *vehicle.State) {}

// Settle does nothing, because every state that is published to queries is stored.
func (e *Engine) Settle(context.Context) {}

// Unstored returns false, because queries use only stored states.
func (e *Engine) Unstored(context.Context, vehicle.ID) (vehicle.State, bool) {
	return vehicle.State{}, false
}

// Commit implements [store.Partition]. More than [store.BatchStates] states are an error, because
// one batch stores them all, with the cursor. So no state is ahead of the cursor, and a node that
// has lost the partition is fenced out. If the context ends first, the states may be stored in
// spite of the error. With seq 0 and no states, Commit only stores the cursor once more.
func (t *Partition) Commit(
	ctx context.Context, seq uint64, states map[vehicle.ID][]byte, more bool,
) error {
	if len(states) > store.BatchStates || more {
		return fmt.Errorf("not one batch of states: %d, limit %d", len(states), store.BatchStates)
	}
	start := time.Now()
	writes := make([]store.Write, 0, len(states)+1)
	for id, packed := range states {
		subject := codec.StateSubject(t.number, id)
		writes = append(writes, store.Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, packed...))})
	}
	if seq != 0 {
		t.cursor.Next = seq + 1
	}
	if err := t.commitBatch(ctx, writes); err != nil {
		return err
	}
	t.e.metrics.Fold(len(states), time.Since(start))
	return nil
}

// commitBatch stores states together with the cursor t.cursor. It retries and fails like Commit.
func (t *Partition) commitBatch(ctx context.Context, states []store.Write) error {
	for {
		rev, err := t.e.Store(ctx, codec.States, append(states, t.cursor.write(t.number, t.rev)))
		if err == nil {
			t.rev = rev
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if errors.Is(err, store.ErrConflict) {
			// An earlier try may have been stored although its response was lost. The cursor
			// contains its owner and generation, so no other process can have written the same
			// cursor.
			is, err := t.e.Last(ctx, codec.States, codec.CursorSubject(t.number))
			var stored cursor
			if err == nil {
				stored, err = decodeCursor(is, t.number)
			}
			switch {
			case t.e.config.Newer.Note(codec.States, err):
				return fmt.Errorf("partition %d: %w: %w", t.number, store.ErrFenced, err)
			case err != nil:
			case is.Seq == t.rev: // nothing has been stored yet; a write is in progress
			case is.Seq > t.rev && stored == t.cursor:
				t.rev = is.Seq
				return nil
			case stored.Owner == t.cursor.Owner && stored.Generation == t.cursor.Generation &&
				stored.Fences != t.cursor.Fences:
				return fmt.Errorf("partition %d: %w", t.number, store.ErrRecalled)
			default:
				return fmt.Errorf("partition %d: %w", t.number, store.ErrFenced)
			}
		}
		t.e.warned.fold.Log(t.e.log, "cannot store a fold yet; will retry", "partition", t.number, "error", err)
		if err := periodic.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (e *Engine) Folding() map[int]bool {
	owned := make(map[int]bool)
	for p := range e.taken {
		if t := e.taken[p].Load(); t != nil && !t.closed.Load() {
			owned[p] = true
		}
	}
	return owned
}

// Close implements [store.Partition]: it stops reading.
func (t *Partition) Close() {
	t.closed.Store(true)
	t.unsubscribe()
}

func (t *Partition) unsubscribe() {
	if t.sub != nil {
		t.sub.Unsubscribe()
		t.sub = nil
	}
}

// States implements [store.Partition]. Everything that was committed before the partition was taken
// precedes the cursor record that Take has stored, so the scan delivers it.
func (t *Partition) States(ctx context.Context, put func(id vehicle.ID, packed []byte, folded uint64)) error {
	subjects := []string{codec.StateSubject(t.number, "*")}
	err := t.e.Scan(ctx, codec.States, subjects, func(r store.Record) error {
		store.PutState(r, t.next-1, put)
		return nil
	})
	t.e.config.Newer.Note(codec.States, err)
	return err
}

func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

// Unfolded implements [store.Engine].
func (e *Engine) Unfolded() *store.Unfolded { return e.unfolded }

// Fence implements [store.Engine]: it writes the sequence seq of a tombstone into the cursor of
// partition p. This also changes the cursor's revision, so a commit in progress fails, and the
// owner takes the partition again.
func (e *Engine) Fence(ctx context.Context, p int, seq uint64, _ vehicle.ID) error {
	s, err := e.js.Stream(ctx, codec.Sources)
	if err != nil {
		return err
	}
	made := s.CachedInfo().Created.UnixNano()
	_, err = e.changeCursor(ctx, p, func(c *cursor) (bool, error) {
		// Fences increases, so that an owner can distinguish this cursor record from one that the
		// owner wrote.
		c.Fences++
		if c.ForgottenIn != 0 && c.ForgottenIn != made {
			c.Forgotten = 0 // it refers to a SOURCES stream that no longer exists
		}
		c.Forgotten, c.ForgottenIn = max(c.Forgotten, seq), made
		return true, nil
	})
	return err
}

// awaitTombstone waits until this node has applied the record seq of SOURCES. made is the creation
// time, in Unix ns, of the stream to which seq refers; 0 means the current one. If that stream was
// replaced, or has lost the record, it does not wait. If this node's tombstones were read from
// another stream than the current one, the error is [store.ErrReplaced].
func (e *Engine) awaitTombstone(ctx context.Context, seq uint64, made int64) error {
	if err := e.Alive(); err != nil {
		return err // the tables are copies of streams that no longer exist
	}
	f := e.tombstoneFeed.Load()
	if f == nil || seq == 0 {
		return nil // without a RecordStore, this node forgets nothing
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
	if f.created.Load() != info.Created.UnixNano() {
		return fmt.Errorf("%w: this node's tombstones are of another stream %s", store.ErrReplaced, codec.Sources)
	}
	return nil
}

func (e *Engine) AwaitTombstones(ctx context.Context) error {
	return e.awaitTombstone(ctx, math.MaxUint64, 0)
}

// recall handles r, a record that the feed of STATES has delivered. If r is a cursor, its partition
// is folded up to there. If this process has taken that partition, and r shows that Fence was
// called since, or that a newer version wrote it, Next returns store.ErrRecalled from now on.
func (e *Engine) recall(r store.Record) {
	p, ok := codec.PartitionOfCursor(r.Subject)
	if !ok || p >= e.partitions {
		return
	}
	var c cursor
	known := !r.Newer && json.Unmarshal(r.Body, &c) == nil
	if known && c.Next > 0 {
		e.unfolded.Fold(p, c.Next-1)
	}
	if t := e.taken[p].Load(); t != nil && (r.Newer || known && c.Fences != t.cursor.Fences) {
		t.recall()
	}
}

// changeCursor changes the cursor of partition p by compare-and-set, and returns its new revision.
// It retries as [store.Change] does, for Patience.Store at most. If change returns false or an
// error, nothing is stored.
func (e *Engine) changeCursor(
	ctx context.Context, p int, change func(c *cursor) (changed bool, err error),
) (rev uint64, err error) {
	write := func(is store.Record) ([]store.Write, error) {
		c, err := decodeCursor(is, p)
		changed := false
		if err == nil {
			changed, err = change(&c)
		}
		if err != nil || !changed {
			return nil, err
		}
		return []store.Write{c.write(p, is.Seq)}, nil
	}
	return store.Change(ctx, e, e.config.Patience.Store, codec.States, codec.CursorSubject(p), write)
}
