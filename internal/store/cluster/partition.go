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

	folding folding
}

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
	// Fences counts how often somebody who does not fold made the owner take
	// the partition anew.
	Fences uint64 `json:"fences,omitempty"`
}

// MaxStates is how many states one [Partition.Commit] can store, in as many
// atomic batches as it takes. A fold of a backlog holds so many, because a
// vehicle that is in it several times is then stored once.
const MaxStates = 16 * BatchStates

// BatchStates is how many states go into one atomic batch with the cursor, and
// the most that what one [Partition.Next] returns can touch.
const BatchStates = maxBatch - 1

// Take makes owner the one who folds partition p, whoever had it. From then on
// nobody who had it before can commit.
func (e *Engine) Take(ctx context.Context, p int, owner string) (*Partition, error) {
	return e.TakeFrom(ctx, p, owner, func(string) bool { return true })
}

// TakeFrom is like Take, but returns [store.ErrHeld] if free(holder) is false. The
// holder is "" if the partition was never folded or was released.
func (e *Engine) TakeFrom(ctx context.Context, p int, owner string, free func(holder string) bool) (*Partition, error) {
	t := &Partition{e: e, number: p}
	t.recalled, t.recall = context.WithCancel(context.Background())
	var err error
	t.rev, err = e.changeRecord(ctx, States, codec.CursorSubject(p), func(is record) ([]write, error) {
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
		s, err := e.js.Stream(ctx, Telemetry)
		if err != nil {
			return nil, err
		}
		t.cursor = cursor{Owner: owner, Generation: old.Generation + 1, Next: max(old.Next, 1), Made: s.CachedInfo().Created.UnixNano(), Forgotten: old.Forgotten, ForgottenIn: old.ForgottenIn, Fences: old.Fences}
		if t.overtaken(s) || old.Made != t.cursor.Made {
			t.cursor.Next = 1 // what was folded already changes nothing
		}
		return []write{t.cursorWrite(is.seq)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("partition %d cannot be taken: %w", p, err)
	}
	t.next, t.fences = t.cursor.Next, t.cursor.Fences
	e.taken.Store(p, t)
	return t, nil
}

// Release gives a partition up that owner has, perhaps without knowing it, so that
// another node need not wait until the lease is stale. It is no error if owner has
// it not.
func (e *Engine) Release(ctx context.Context, p int, owner string) error {
	_, err := e.changeRecord(ctx, States, codec.CursorSubject(p), func(is record) ([]write, error) {
		c, err := decodeCursor(is, p)
		if err != nil || c.Owner != owner {
			return nil, err
		}
		c.Owner = ""
		t := Partition{e: e, number: p, cursor: c}
		return []write{t.cursorWrite(is.seq)}, nil
	})
	return err
}

// overtaken reports whether TELEMETRY is not the one that the cursor counts in,
// or has lost its end, which a cluster that does not sync each write can do in a
// power cut. What is stored then gets sequences that count as folded.
func (t *Partition) overtaken(s jetstream.Stream) bool {
	info := s.CachedInfo()
	return info.State.LastSeq+1 < max(t.cursor.Next, t.next) || info.Created.UnixNano() != t.cursor.Made
}

// readCursor returns the cursor of a partition and its revision; zeros if it
// was never folded.
func (e *Engine) readCursor(ctx context.Context, p int) (c cursor, rev uint64, err error) {
	body, rev, err := e.lastRecord(ctx, States, codec.CursorSubject(p))
	if err == nil {
		c, err = decodeCursor(record{body: body, seq: rev}, p)
	}
	return c, rev, err
}

// decodeCursor returns the zero cursor if there is no record.
func decodeCursor(is record, p int) (c cursor, err error) {
	if is.seq != 0 && json.Unmarshal(is.body, &c) != nil {
		return cursor{}, fmt.Errorf("%w: the cursor of partition %d", codec.ErrDamaged, p)
	}
	return c, nil
}

// lastRecord reads the last record of a subject from the stream's leader, never
// from a replica that may lag. rev is 0 if there is none.
func (e *Engine) lastRecord(ctx context.Context, stream, subject string) (body []byte, rev uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	opts := []nats.JSOpt{nats.Context(ctx)}
	if e.config.embedded() {
		// Any replica may answer this way, at half the cost; here there is one.
		opts = append(opts, nats.DirectGet())
	}
	m, err := e.legacy.GetLastMsg(stream, subject, opts...)
	if errors.Is(err, nats.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the engine cannot be asked for %s: %w", subject, err)
	}
	body, err = codec.Unseal(subject, m.Data)
	return body, m.Sequence, err
}

func (t *Partition) cursorWrite(rev uint64) write {
	text, err := json.Marshal(t.cursor)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	subject := codec.CursorSubject(t.number)
	return write{subject, codec.Seal(subject, append([]byte{0}, text...)), rev, true}
}

// usualSampleBytes is about what a packed sample takes.
const usualSampleBytes = 44

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
		samples = make([]vehicle.Sample, 0, len(body)/usualSampleBytes+1)
		err = codec.DecodeSamples(body, func(x vehicle.Sample) {
			if !t.e.forgotten.Covers(x.Vehicle, seq, t.cursor.Made) {
				samples = append(samples, x)
			}
		})
	}
	if err != nil {
		err = fmt.Errorf("%s: record %d: %w", Telemetry, seq, err)
		t.e.fail(err)
		return 0, nil, err
	}
	t.noteTraced(m)
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
		try, cancel := context.WithTimeout(ctx, t.e.config.Patience.Stall)
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
	t.sub, err = t.e.legacy.SubscribeSync(codec.TelemetrySubject(t.number),
		nats.OrderedConsumer(), nats.BindStream(Telemetry),
		nats.IdleHeartbeat(t.e.config.Patience.Idle), nats.StartSequence(t.next))
	if err != nil {
		return err
	}
	return t.sub.SetPendingLimits(-1, -1)
}

// checkSubscription returns an error if what t.next counts in is gone, and
// drops a subscription that is silent although there is something to fold, so
// that the next look subscribes again. While the engine is out of reach nobody
// knows; the subscription is kept, and mends itself.
func (t *Partition) checkSubscription(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := t.e.js.Stream(ctx, Telemetry)
	if err != nil {
		return nil
	}
	if t.overtaken(s) {
		return fmt.Errorf("partition %d: %w: %s was read up to %d and now ends at %d", t.number, ErrReplaced, Telemetry, t.next-1, s.CachedInfo().State.LastSeq)
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

// Commit stores states, at most [MaxStates], and notes that everything up to
// the commit seq is folded. It tries until it is done, the context ends, or
// another node turns out to own the partition ([store.ErrFenced]). With seq 0 and no
// states it only renews the cursor's record.
//
// More states than one atomic batch can hold go in several. Each ends with the
// cursor, which fences out whoever has lost the partition; only the last one
// moves it. A crash in between leaves states that are ahead of the cursor: what
// they know already is folded into them again, which changes nothing.
func (t *Partition) Commit(ctx context.Context, seq uint64, states map[vehicle.ID]vehicle.State) error {
	if len(states) > MaxStates {
		return fmt.Errorf("%d states are more than one commit can store", len(states))
	}
	start := time.Now()
	writes := make([]write, 0, min(len(states), BatchStates)+1)
	left := len(states)
	for id, s := range states {
		writes = append(writes, t.stateWrite(id, &s))
		if left--; len(writes) == BatchStates && left > 0 {
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
	t.e.metrics.foldSeconds.Observe(time.Since(start).Seconds())
	t.e.metrics.foldedStates.Add(float64(len(states)))
	t.traceFold(ctx, len(states))
	return nil
}

func (t *Partition) stateWrite(id vehicle.ID, s *vehicle.State) write {
	subject := codec.StateSubject(t.number, id)
	return write{subject: subject, record: codec.Seal(subject, codec.AppendState([]byte{0}, s))}
}

// commitBatch stores states, at most BatchStates, with the cursor as it is.
func (t *Partition) commitBatch(ctx context.Context, states []write) error {
	for {
		rev, err := t.e.storeBatch(ctx, States, append(states, t.cursorWrite(t.rev)))
		if err == nil {
			t.rev = rev
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if conflict(err) {
			// An earlier try of ours may have been stored although its
			// answer was lost. The cursor names its owner and the time of
			// taking, so nobody else can have written the same.
			stored, rev, err := t.e.readCursor(ctx, t.number)
			switch {
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
		if t.e.storing.Err() != nil {
			<-ctx.Done() // the process ends, once that helps
			return ctx.Err()
		}
		t.e.warned.fold.Log(t.e.log, "a fold is stored again", "partition", t.number, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Close stops reading. The partition stays ours until somebody takes it.
func (t *Partition) Close() {
	t.closed.Store(true)
	if t.sub != nil {
		t.sub.Unsubscribe()
		t.sub, t.consumer = nil, ""
	}
}
