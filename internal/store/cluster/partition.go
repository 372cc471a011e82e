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

// Partition is one partition in the hands of the node that folds it. It is not
// safe for concurrent use.
type Partition struct {
	e      *Engine
	number int
	cursor cursor
	rev    uint64    // sequence of the cursor's record: what fences others out
	next   uint64    // sequence of the first commit that Next has not returned
	stored time.Time // when what Next returned last was stored

	closed   atomic.Bool
	sub      *nats.Subscription
	consumer string // name of the consumer that feeds sub; "" before its first message

	fences   uint64          // as in the cursor when it was taken
	recalled context.Context // ends when the partition must be taken anew
	recall   context.CancelFunc

	spans store.FoldSpans
}

// Take makes owner the one who folds partition p. From then on nobody who had it before
// can commit. The holder is "" if the partition was never folded or was released.
func (e *Engine) Take(ctx context.Context, p int, owner string, free func(holder string) bool) (store.Partition, error) {
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
		t.cursor = cursor{Owner: owner, Generation: old.Generation + 1, Next: max(old.Next, 1), Made: s.CachedInfo().Created.UnixNano(), Forgotten: old.Forgotten, ForgottenIn: old.ForgottenIn, Fences: old.Fences}
		if t.overtaken(s) || old.Made != t.cursor.Made {
			t.cursor.Next = 1 // what was folded already changes nothing
		}
		return []store.Write{t.cursor.write(p, is.Seq)}, nil
	})
	if err != nil {
		e.noteNewer(codec.States, err)
		return nil, fmt.Errorf("partition %d cannot be taken: %w", p, err)
	}
	t.next, t.fences = t.cursor.Next, t.cursor.Fences
	e.taken.Store(p, t)
	return t, nil
}

// Release gives a partition up that owner has, perhaps without knowing it, so that
// another node need not wait until the lease is stale. It is no error if owner has
// it not. A cursor that a newer version wrote is released if this process never had the
// partition or released it before; otherwise nobody can tell, and the error says so.
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

// noteNewer notes an error that says that a newer version wrote a record of a stream.
func (e *Engine) noteNewer(stream string, err error) {
	if codec.IsNewer(err) {
		e.config.Newer.Note(stream, err)
	}
}

// overtaken reports whether TELEMETRY is not the one that the cursor counts in,
// or has lost its end, which a cluster that does not sync each write can do in a
// power cut. What is stored then gets sequences that count as folded.
func (t *Partition) overtaken(s jetstream.Stream) bool {
	info := s.CachedInfo()
	return info.State.LastSeq+1 < max(t.cursor.Next, t.next) || info.Created.UnixNano() != t.cursor.Made
}

// Next waits for the next commit of samples that is to be folded. seq goes into
// [Partition.Commit] once they are. There may be none in it: the engine stores an
// empty commit to see whether it can.
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

// Stored is when what [Partition.Next] returned last was stored, by the engine's
// clock.
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
			// Nobody may have sent anything, or the subscription is dead.
			if err := t.checkSubscription(ctx); err != nil {
				return nil, 0, err
			}
			continue
		case err != nil:
			// The client library gives a subscription up when its stream is
			// gone, too.
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
			// The client library has replaced a consumer that the server lost,
			// without a look at the stream.
			t.Close()
			if err := t.checkSubscription(ctx); err != nil {
				return nil, 0, err
			}
			continue
		}
		t.consumer = meta.Consumer
		// The client library starts anew from the stream's beginning if a
		// consumer breaks before its first message. What is folded must not
		// be folded again: it would move the cursor back.
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

// checkSubscription returns an error if what t.next counts in is gone, and
// drops a subscription that is silent although there is something to fold, so
// that the next look subscribes again. While the engine is out of reach nobody
// knows; the subscription is kept, and mends itself.
func (t *Partition) checkSubscription(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := t.e.js.Stream(ctx, codec.Telemetry)
	if err != nil {
		return nil
	}
	if t.overtaken(s) {
		return fmt.Errorf("partition %d: %w: %s was read up to %d and now ends at %d", t.number, store.ErrReplaced, codec.Telemetry, t.next-1, s.CachedInfo().State.LastSeq)
	}
	m, err := firstCommit(ctx, s, t.number, t.next)
	if err != nil || m == nil || t.sub == nil || t.Waiting() {
		return nil
	}
	t.e.log.Warn("a partition is subscribed again", "partition", t.number, "waiting_since", m.Time)
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

// Answer implements [store.Partition]: another node that takes the partition may answer
// before it has folded as far.
func (t *Partition) Answer(vehicle.ID, *vehicle.State) {}

// Settle implements [store.Engine]: folds do not wait to be stored.
func (e *Engine) Settle(context.Context) {}

// Commit stores states, at most [store.MaxStates], and notes that everything up to
// the commit seq is folded. It tries until it is done, the context ends, or
// another node turns out to own the partition ([store.ErrFenced]). With seq 0 and no
// states it only renews the cursor's record.
//
// More states than one atomic batch can hold go in several. Each ends with the
// cursor, which fences out whoever has lost the partition; only the last one
// moves it. A crash in between leaves states that are ahead of the cursor: what
// they know already is folded into them again, which changes nothing.
func (t *Partition) Commit(ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State) error {
	if len(states) > store.MaxStates {
		return fmt.Errorf("%d states are more than one commit can store", len(states))
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
			// An earlier try of ours may have been stored although its
			// answer was lost. The cursor names its owner and the time of
			// taking, so nobody else can have written the same.
			stored, rev, err := t.e.readCursor(ctx, t.number)
			switch {
			case codec.IsNewer(err):
				t.e.noteNewer(codec.States, err)
				return fmt.Errorf("partition %d: %w: %w", t.number, store.ErrFenced, err)
			case err != nil:
			case rev == t.rev: // nothing has been stored yet: a write is under way
			case rev > t.rev && stored == t.cursor:
				t.rev = rev
				return nil
			case stored.Owner == t.cursor.Owner && stored.Generation == t.cursor.Generation && stored.Fences != t.cursor.Fences:
				return fmt.Errorf("partition %d: %w", t.number, store.ErrRecalled)
			default:
				return fmt.Errorf("partition %d: %w", t.number, store.ErrFenced)
			}
		}
		t.e.warned.fold.Log(t.e.log, "a fold is stored again", "partition", t.number, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Folds reports whether this process owns a partition, as its cursor says.
func (e *Engine) Folds(ctx context.Context, p int) (bool, error) {
	taken, ok := e.taken.Load(p)
	if !ok {
		return false, nil
	}
	c, _, err := e.readCursor(ctx, p)
	ours := taken.(*Partition)
	return c.Owner == ours.cursor.Owner && c.Generation == ours.cursor.Generation, err
}

// Folding are the partitions that this process has taken and not closed.
func (e *Engine) Folding() map[int]bool {
	mine := make(map[int]bool)
	e.taken.Range(func(p, t any) bool {
		if !t.(*Partition).closed.Load() {
			mine[p.(int)] = true
		}
		return true
	})
	return mine
}

// Close stops reading. The partition stays ours until somebody takes it.
func (t *Partition) Close() {
	t.closed.Store(true)
	if t.sub != nil {
		t.sub.Unsubscribe()
		t.sub, t.consumer = nil, ""
	}
}

// loadTimeout bounds one Load, with all its tries.
const loadTimeout = 4 * requestTimeout

// Load calls put for the stored state of each of the vehicles that has one, by
// its place in ids, including all that was committed before the partition was
// taken. It is one question, answered by any server that has all of that: a
// server that was deposed or lags behind is asked again or another one is.
func (t *Partition) Load(ctx context.Context, ids []vehicle.ID, put func(i int, s vehicle.State)) error {
	if len(ids) > store.MaxLoad {
		return fmt.Errorf("%d states are more than one question can ask for", len(ids))
	}
	place := make(map[vehicle.ID]int, len(ids))
	subjects := make([]string, 0, len(ids)+1)
	for i, id := range ids {
		place[id] = i
		subjects = append(subjects, codec.StateSubject(t.number, id))
	}
	// There is always an answer, because the cursor is there.
	subjects = append(subjects, codec.CursorSubject(t.number))
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	records, err := t.e.awaitRecords(ctx, codec.States, subjects, t.rev)
	if err != nil {
		return fmt.Errorf("the engine cannot be asked for states: %w", err)
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

// Forgotten is this node's copy of the tombstones, which a [store.RecordStore] feeds.
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
		return []store.Write{c.write(p, is.Seq)}, nil
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
	if t := taken.(*Partition); r.Newer || json.Unmarshal(r.Body, &c) == nil && c.Fences != t.fences {
		t.recall()
	}
}

// change is [store.Change] with the engine's patience.
func (e *Engine) change(ctx context.Context, stream, subject string, change func(is store.Record) ([]store.Write, error)) (seq uint64, err error) {
	return store.Change(ctx, e, e.config.Patience.Store, stream, subject, change)
}
