package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Partition is a partition that this node folds. It is not safe for concurrent use.
type Partition struct {
	e      *Engine
	number int
	cursor cursor
	rev    uint64    // sequence of the cursor's record, which serves as the fencing token
	next   uint64    // sequence of the first commit that Next has not returned
	stored time.Time // when the last result of Next was stored

	closed   atomic.Bool
	sub      *nats.Subscription
	consumer string // name of the consumer of sub; "" before its first message

	fences   uint64          // the cursor's Fences when the partition was taken
	recalled context.Context // ends when the partition must be taken again
	recall   context.CancelFunc

	spans store.FoldSpans
}

// Take makes owner the owner of partition p. From then on no earlier owner can commit. holder
// is "" if the partition was never folded or was released.
func (e *Engine) Take(
	ctx context.Context, p int, owner string, free func(holder string) bool,
) (store.Partition, error) {
	t, err := e.take(ctx, p, owner, free)
	if err != nil {
		return nil, err // a nil *Partition would be a non-nil interface
	}
	return t, nil
}

func (e *Engine) take(ctx context.Context, p int, owner string, free func(holder string) bool) (*Partition, error) {
	t := &Partition{e: e, number: p}
	t.recalled, t.recall = context.WithCancel(context.Background())
	var err error
	t.rev, err = e.change(ctx, codec.States, codec.CursorSubject(p), func(is store.Record) ([]store.Write, error) {
		old, err := decodeCursor(is, p)
		if err != nil {
			return nil, err
		}
		if !free(old.Owner) {
			return nil, store.ErrHeld
		}
		if err := e.awaitTombstone(ctx, old.Forgotten, old.ForgottenIn); err != nil {
			return nil, err
		}
		s, err := e.js.Stream(ctx, codec.Telemetry)
		if err != nil {
			return nil, err
		}
		t.cursor = cursor{
			Owner: owner, Generation: old.Generation + 1, Next: max(old.Next, 1),
			Made:      s.CachedInfo().Created.UnixNano(),
			Forgotten: old.Forgotten, ForgottenIn: old.ForgottenIn, Fences: old.Fences,
		}
		if t.isCursorStale(s) || old.Made != t.cursor.Made {
			t.cursor.Next = 1 // folding what was folded already changes nothing
		}
		return []store.Write{t.cursor.write(p, is.Seq)}, nil
	})
	if err != nil {
		e.noteNewer(codec.States, err)
		return nil, fmt.Errorf("cannot take partition %d: %w", p, err)
	}
	t.next, t.fences = t.cursor.Next, t.cursor.Fences
	e.taken.Store(p, t)
	return t, nil
}

// Release gives up a partition that owner has, perhaps without knowing it, so that another
// node need not wait until the lease expires. It is no error if owner does not have the
// partition. If a newer version wrote the cursor, the owner is unknown: Release returns nil if
// this process never took the partition or has released it before, and an error otherwise.
func (e *Engine) Release(ctx context.Context, p int, owner string) error {
	_, err := e.change(ctx, codec.States, codec.CursorSubject(p), func(is store.Record) ([]store.Write, error) {
		c, err := decodeCursor(is, p)
		if err != nil || c.Owner != owner {
			return nil, err
		}
		c.Owner = ""
		return []store.Write{c.write(p, is.Seq)}, nil
	})
	if err == nil {
		e.taken.Delete(p)
	} else if _, had := e.taken.Load(p); !had && codec.IsNewer(err) {
		return nil
	}
	return err
}

// noteNewer records an error that means that a newer version wrote a record of a stream.
func (e *Engine) noteNewer(stream string, err error) {
	if codec.IsNewer(err) {
		e.config.Newer.Note(stream, err)
	}
}

// isCursorStale reports whether TELEMETRY is not the stream that the cursor refers to, or has lost
// its end. A cluster that does not sync each write can lose it in a power cut. New commits
// then get sequences that count as folded.
func (t *Partition) isCursorStale(s jetstream.Stream) bool {
	info := s.CachedInfo()
	return info.State.LastSeq+1 < max(t.cursor.Next, t.next) || info.Created.UnixNano() != t.cursor.Made
}

// Next waits for the next commit of samples to fold. Its seq is passed to [Partition.Commit]
// once the samples are folded. There may be no samples, because tryTelemetry stores empty
// commits.
func (t *Partition) Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error) {
	m, seq, err := t.nextMessage(ctx)
	if err != nil {
		return 0, nil, err
	}
	body, err := codec.Unseal(m.Subject, m.Data)
	if err == nil {
		samples = make([]vehicle.Sample, 0, len(body)/store.UsualSampleBytes+1)
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
		t.e.noteNewer(codec.Telemetry, err)
		err = fmt.Errorf("%s: record %d: %w", codec.Telemetry, seq, err)
		if !codec.IsNewer(err) {
			t.e.fail(err)
		}
		return 0, nil, err
	}
	if t.e.config.Tracer != nil && len(m.Header) > 0 {
		traced := traceHeader.Extract(context.Background(), propagation.HeaderCarrier(m.Header))
		t.spans.Note(seq, trace.SpanContextFromContext(traced))
	}
	t.next = seq + 1
	return seq, samples, nil
}

// Stored returns when the last result of [Partition.Next] was stored, by NATS's clock.
func (t *Partition) Stored() time.Time { return t.stored }

// nextMessage waits for the first message at or after t.next.
func (t *Partition) nextMessage(ctx context.Context) (*nats.Msg, uint64, error) {
	for {
		if t.sub == nil {
			if err := t.subscribe(); err != nil {
				return nil, 0, err
			}
		}
		try, cancel := context.WithTimeout(ctx, t.e.config.Timeouts.Stall)
		stop := context.AfterFunc(t.recalled, cancel)
		m, err := t.sub.NextMsgWithContext(try)
		silent := err != nil && try.Err() != nil
		stop()
		cancel()
		switch {
		case ctx.Err() != nil && err != nil:
			return nil, 0, ctx.Err()
		case t.recalled.Err() != nil:
			return nil, 0, fmt.Errorf("partition %d: %w", t.number, store.ErrRecalled)
		case silent:
			// Either nothing was sent, or the subscription is dead.
			if err := t.checkSubscription(ctx); err != nil {
				return nil, 0, err
			}
			continue
		case err != nil:
			// The client library also gives a subscription up when its stream is gone.
			if replaced := t.checkSubscription(ctx); replaced != nil {
				return nil, 0, replaced
			}
			return nil, 0, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, 0, err
		}
		if t.consumer != "" && meta.Consumer != t.consumer {
			// The client library has replaced a consumer that the server lost, without
			// checking the stream.
			t.Close()
			if err := t.checkSubscription(ctx); err != nil {
				return nil, 0, err
			}
			continue
		}
		t.consumer = meta.Consumer
		// The client library restarts at the stream's beginning if a consumer breaks before
		// its first message. A folded message must not be folded again: that would move the
		// cursor back.
		if meta.Sequence.Stream >= t.next {
			t.stored = meta.Timestamp
			return m, meta.Sequence.Stream, nil
		}
	}
}

func (t *Partition) subscribe() (err error) {
	t.sub, err = t.e.readTelemetry(codec.TelemetrySubject(t.number), nats.StartSequence(t.next))
	return err
}

// checkSubscription returns an error if the stream that t.next refers to is gone. It drops a
// subscription that is silent although there is something to fold, so that nextMessage
// subscribes again. While NATS is out of reach nothing is known: the subscription is kept, and
// recovers by itself.
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
	t.Close()
	return nil
}

// Waiting reports whether Next would return at once.
func (t *Partition) Waiting() bool {
	if t.sub == nil {
		return false
	}
	n, _, err := t.sub.Pending()
	return err == nil && n > 0
}

// Answer implements [store.Partition]. It does nothing: another node that takes the partition
// may answer before it has folded as far.
func (t *Partition) Answer(vehicle.ID, *vehicle.State) {}

// Settle implements [store.Engine]. It does nothing: derive commits a fold before it becomes
// an answer.
func (e *Engine) Settle(context.Context) {}

// Commit stores states, at most [store.MaxStates], and notes that everything up to the commit
// seq is folded. It retries until it succeeds, the context ends, or another node turns out to
// own the partition ([store.ErrFenced]). With seq 0 and no states it only renews the cursor's
// record.
//
// If there are more states than one atomic batch can hold, they are stored in several. Each
// batch ends with the cursor, which fences out a node that has lost the partition; only the
// last one moves the cursor. A crash between two batches leaves states that are ahead of the
// cursor. Samples that they contain already are then folded into them again, which changes
// nothing.
func (t *Partition) Commit(ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State) error {
	if len(states) > store.MaxStates {
		return fmt.Errorf("too many states in one commit: %d, limit %d", len(states), store.MaxStates)
	}
	start := time.Now()
	writes := make([]store.Write, 0, min(len(states), store.BatchStates)+1)
	left := len(states)
	for id, s := range states {
		writes = append(writes, t.stateWrite(id, s))
		if left--; len(writes) == store.BatchStates && left > 0 {
			if err := t.commitBatch(ctx, writes); err != nil {
				return err
			}
			writes = writes[:0]
		}
	}
	if seq != 0 {
		t.cursor.Next = seq + 1
	}
	if err := t.commitBatch(ctx, writes); err != nil {
		return err
	}
	t.e.metrics.Fold(len(states), time.Since(start))
	t.spans.Folded(ctx, t.e.config.Tracer, t.number, seq, len(states))
	return nil
}

func (t *Partition) stateWrite(id vehicle.ID, s *vehicle.State) store.Write {
	subject := codec.StateSubject(t.number, id)
	return store.Write{Subject: subject, Record: codec.Seal(subject, codec.AppendState([]byte{0}, s))}
}

// commitBatch stores states, at most store.BatchStates, with the cursor as it is.
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
			stored, rev, err := t.e.readCursor(ctx, t.number)
			switch {
			case codec.IsNewer(err):
				t.e.noteNewer(codec.States, err)
				return fmt.Errorf("partition %d: %w: %w", t.number, store.ErrFenced, err)
			case err != nil:
			case rev == t.rev: // nothing has been stored yet: a write is in progress
			case rev > t.rev && stored == t.cursor:
				t.rev = rev
				return nil
			case stored.Owner == t.cursor.Owner && stored.Generation == t.cursor.Generation &&
				stored.Fences != t.cursor.Fences:
				return fmt.Errorf("partition %d: %w", t.number, store.ErrRecalled)
			default:
				return fmt.Errorf("partition %d: %w", t.number, store.ErrFenced)
			}
		}
		t.e.warned.fold.Log(t.e.log, "cannot store a fold yet; will retry", "partition", t.number, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Folds reports whether this process owns a partition, according to its cursor.
func (e *Engine) Folds(ctx context.Context, p int) (bool, error) {
	taken, ok := e.taken.Load(p)
	if !ok {
		return false, nil
	}
	c, _, err := e.readCursor(ctx, p)
	ours := taken.(*Partition)
	return c.Owner == ours.cursor.Owner && c.Generation == ours.cursor.Generation, err
}

// Folding returns the partitions that this process has taken and not closed.
func (e *Engine) Folding() map[int]bool {
	owned := make(map[int]bool)
	e.taken.Range(func(p, t any) bool {
		if !t.(*Partition).closed.Load() {
			owned[p.(int)] = true
		}
		return true
	})
	return owned
}

// Close stops reading. This process remains the owner until another one takes the partition.
func (t *Partition) Close() {
	t.closed.Store(true)
	if t.sub != nil {
		t.sub.Unsubscribe()
		t.sub, t.consumer = nil, ""
	}
}

// loadTimeout bounds one Load, with all its tries.
const loadTimeout = 4 * requestTimeout

// Load calls put for the stored state of each vehicle that has one, with the vehicle's index
// in ids. The states include everything that was committed before the partition was taken. One
// request asks for all of them. Any server may answer that has reached the partition's cursor
// record; if a deposed or lagging server answers, the request is repeated.
func (t *Partition) Load(ctx context.Context, ids []vehicle.ID, put func(i int, s vehicle.State)) error {
	if len(ids) > store.MaxLoad {
		return fmt.Errorf("too many states in one request: %d, limit %d", len(ids), store.MaxLoad)
	}
	place := make(map[vehicle.ID]int, len(ids))
	subjects := make([]string, 0, len(ids)+1)
	for i, id := range ids {
		place[id] = i
		subjects = append(subjects, codec.StateSubject(t.number, id))
	}
	// The cursor is always there, so there is always an answer.
	subjects = append(subjects, codec.CursorSubject(t.number))
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	records, err := t.e.awaitRecords(ctx, codec.States, subjects, t.rev)
	if err != nil {
		return fmt.Errorf("cannot read states from NATS: %w", err)
	}
	return t.decode(records, place, put)
}

func (t *Partition) decode(records []store.Record, place map[vehicle.ID]int, put func(i int, s vehicle.State)) error {
	for _, r := range records {
		id, ok := codec.VehicleOfState(r.Subject)
		i, asked := place[id]
		if !ok || !asked {
			continue
		}
		body, err := codec.Unseal(r.Subject, r.Sealed)
		if err == nil && codec.IsMarker(body) {
			continue
		}
		var s vehicle.State
		if err == nil {
			s, err = codec.DecodeState(body)
		}
		if err != nil {
			t.e.noteNewer(codec.States, err)
			err = fmt.Errorf("%s: record %d: %w", codec.States, r.Seq, err)
			if !codec.IsNewer(err) {
				t.e.fail(err)
			}
			return err
		}
		put(i, s)
	}
	return nil
}

// Forgotten returns this node's copy of the tombstones, which a [store.RecordStore] feeds.
func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

// Fence notes the tombstone at seq in a partition's cursor, so that no node folds the
// partition before it has applied that tombstone. A commit in progress fails on the cursor's
// revision.
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
		// Fences grows, so that no owner takes the record for its own.
		c.Fences++
		if c.ForgottenIn != 0 && c.ForgottenIn != made {
			c.Forgotten = 0 // it refers to a SOURCES stream that no longer exists
		}
		c.Forgotten, c.ForgottenIn = max(c.Forgotten, seq), made
		return []store.Write{c.write(p, is.Seq)}, nil
	})
	return err
}

// awaitTombstone waits until this node has applied sequence seq of the SOURCES stream created
// at made (0: the current one). If that stream was re-created, or truncated below seq, the
// record will never arrive, and there is no wait for it.
func (e *Engine) awaitTombstone(ctx context.Context, seq uint64, made int64) error {
	if err := e.Alive(); err != nil {
		return err // the tables are of streams that no longer exist
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
	if read := f.readFrom(); !read.Equal(info.Created) {
		return fmt.Errorf("%w: this node's tombstones are of another stream %s", store.ErrReplaced, codec.Sources)
	}
	return nil
}

// AwaitTombstones waits until this node has applied every existing tombstone.
func (e *Engine) AwaitTombstones(ctx context.Context) error {
	s, err := e.js.Stream(ctx, codec.Sources)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.awaitTombstone(ctx, s.CachedInfo().State.LastSeq, 0)
}

// recall invalidates a taken partition if r is its cursor and was fenced since this process
// took it, or was written by a newer version. derive then drops its cached states of the
// partition.
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
	if t := taken.(*Partition); r.Newer || json.Unmarshal(r.Body, &c) == nil && c.Fences != t.fences {
		t.recall()
	}
}

// change is [store.Change] with the configured patience.
func (e *Engine) change(
	ctx context.Context, stream, subject string, change func(is store.Record) ([]store.Write, error),
) (seq uint64, err error) {
	return store.Change(ctx, e, e.config.Patience.Store, stream, subject, change)
}
