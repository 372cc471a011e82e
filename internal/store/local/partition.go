package local

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// queuedSamples is the maximum number of samples of a partition that wait in memory to be folded
// into states. Further samples are read from the disk when they are folded.
const queuedSamples = 20_000

// partitionState is what the engine knows of one partition, whether or not derive folds the
// partition at present.
type partitionState struct {
	e      *Engine
	number int
	// When the engine was opened: the last sequence, and that of the cursor.
	atOpen, cursorAtOpen uint64

	mu   sync.Mutex // guards the fields down to answered
	last uint64     // last sequence on disk
	// queue holds consecutive groups of samples that wait to be folded. Further groups, which are
	// not in the queue, are read from the disk.
	queue    []group
	queued   int  // samples in queue
	reading  bool // a Partition takes from queue
	arrived  chan struct{}
	answered uint64 // everything up to this sequence is folded and is an answer

	// ownership guards taken and owner. They change only in changes of STATES, which also store the
	// folded states. So no state is being stored while the owner changes.
	ownership sync.RWMutex
	taken     *Partition // the result of the last Take; nil if there was none
	owner     string     // "" if released

	settle chan struct{}            // holds a value while a caller waits for folded states to be stored
	asked  chan *store.StateRequest // holds requests for states in the owner's memory
	cursor atomic.Uint64            // everything up to this sequence is folded and stored

}

// loadPartitions reads the last sequence of each partition's telemetry, and its cursor.
func (e *Engine) loadPartitions() error {
	e.unfolded = store.NewUnfolded(e.dir.Partitions, nil)
	for n := range e.dir.Partitions {
		p := &partitionState{
			e: e, number: n, arrived: make(chan struct{}), settle: make(chan struct{}, 1),
			asked: make(chan *store.StateRequest),
		}
		cursor, err := e.number(cursorKey(n), "a cursor")
		if err != nil {
			return err
		}
		if p.last, err = e.lastGroup(n, cursor); err != nil {
			return err
		}
		ahead, err := e.number(aheadKey(n), "the last folded sequence")
		if err != nil {
			return err
		}
		p.cursor.Store(cursor)
		p.last = max(p.last, cursor, ahead) // all telemetry of the partition may have been trimmed
		p.atOpen, p.cursorAtOpen, p.answered = p.last, cursor, cursor
		e.partitions = append(e.partitions, p)
	}
	return nil
}

// stored returns the sequence of the partition's newest group that is on disk.
func (s *partitionState) stored() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// deliver receives a new group, which is on disk, and wakes a waiting Next. If the group does not
// fit into the queue, Next later reads it from the disk.
func (s *partitionState) deliver(g group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = g.seq
	n := len(s.queue)
	if s.reading && s.queued+len(g.samples) <= queuedSamples && (n == 0 || s.queue[n-1].seq == g.before) {
		s.queue = append(s.queue, g)
		s.queued += len(g.samples)
	}
	close(s.arrived)
	s.arrived = make(chan struct{})
}

// Partition gives an owner access to the partition that it has taken. [Engine.Take] returns it. It
// implements [store.Partition].
type Partition struct {
	s      *partitionState
	next   uint64 // sequence of the first group that Next has not returned
	stored time.Time

	closed atomic.Bool

	// owned ends when the owner may not fold the partition any more. The cause is [store.ErrFenced]
	// or [store.ErrRecalled].
	owned context.Context
	lose  context.CancelCauseFunc
}

// Take implements [store.Engine]: it makes owner the owner of partition n.
func (e *Engine) Take(
	ctx context.Context, n int, owner string, free func(holder string) bool,
) (store.Partition, error) {
	if e.config.Answers != nil {
		select {
		case <-e.following:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s := e.partitions[n]
	t := &Partition{s: s}
	t.owned, t.lose = context.WithCancelCause(context.Background())
	err := s.changeOwner(ctx, func() error {
		if !free(s.owner) {
			return store.ErrHeld
		}
		s.lose(store.ErrFenced)
		t.next, s.taken, s.owner = s.cursor.Load()+1, t, owner
		s.resetQueue(true)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot take partition %d: %w", n, err)
	}
	return t, nil
}

// changeOwner locks ownership and calls change, as a change of STATES. taken and owner may be
// changed only in such a call.
func (s *partitionState) changeOwner(ctx context.Context, change func() error) error {
	return s.e.streams[codec.States].do(ctx, func() error {
		s.ownership.Lock()
		defer s.ownership.Unlock()
		return change()
	})
}

// lose makes further calls of the partition's present owner, if there is one, fail with the cause
// [store.ErrFenced] or [store.ErrRecalled]. It is called in changes of STATES only.
func (s *partitionState) lose(cause error) {
	if s.taken != nil {
		s.taken.lose(cause)
	}
}

// resetQueue empties the queue. If on is set, deliver adds later groups to it.
func (s *partitionState) resetQueue(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.queued, s.reading = nil, 0, on
}

func (t *Partition) check() error {
	if cause := context.Cause(t.owned); cause != nil {
		return fmt.Errorf("partition %d: %w", t.s.number, cause)
	}
	return nil
}

func (e *Engine) Release(ctx context.Context, n int, owner string) error {
	s := e.partitions[n]
	return s.changeOwner(ctx, func() error {
		if s.owner == owner {
			s.owner = ""
			s.lose(store.ErrFenced)
		}
		return nil
	})
}

func (e *Engine) Folding() map[int]bool {
	owned := make(map[int]bool)
	for n, s := range e.partitions {
		s.ownership.RLock()
		if s.taken != nil && !s.taken.closed.Load() {
			owned[n] = true
		}
		s.ownership.RUnlock()
	}
	return owned
}

// Fence implements [store.Engine]. It ignores the sequence of a tombstone, because this process
// already has every stored tombstone in memory. If an owner does not drop the state in time, it
// must take the partition again.
func (e *Engine) Fence(ctx context.Context, n int, _ uint64, id vehicle.ID) error {
	s := e.partitions[n]
	if id != "" && e.Folding()[n] {
		if _, ok := s.ask(ctx, id, true); ok {
			return nil
		}
	}
	return s.changeOwner(ctx, func() error {
		s.lose(store.ErrRecalled)
		return nil
	})
}

func (t *Partition) States(ctx context.Context, put func(id vehicle.ID, packed []byte, folded uint64)) error {
	r := t.s.e.own()
	from, to := statesSpan(t.s.number)
	err := r.iterate(ctx, from, to, r.records(func(r store.Record) error {
		store.PutState(r, t.next-1, put)
		t.s.e.statesRead.Add(1)
		return nil
	}))
	return cmp.Or(err, ctx.Err())
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (t *Partition) Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error) {
	s := t.s
	for ready := false; !ready; {
		if err := t.check(); err != nil {
			return 0, nil, err
		}
		s.mu.Lock()
		s.answered = max(s.answered, t.next-1) // the caller has folded what Next returned before
		answered := s.answered
		asked, arrived, ended := s.asked, (<-chan struct{})(s.arrived), ctx.Done()
		if t.next <= s.answered {
			asked = nil // no request while answered samples are folded again
		}
		if ready = t.next <= s.last; ready {
			arrived, ended = closed, nil
		}
		s.mu.Unlock()
		s.e.unfolded.Fold(s.number, answered)
		select { // at random if samples wait, so that a backlog and a flood of requests both advance
		case <-arrived:
		case r := <-asked:
			return 0, nil, r
		case <-s.settle:
			return 0, nil, store.ErrSettle
		case <-t.owned.Done():
			ready = false
		case <-ended:
			return 0, nil, ctx.Err()
		}
	}
	s.mu.Lock()
	var g group
	if len(s.queue) > 0 && s.queue[0].before < t.next {
		g = s.queue[0]
		s.queued -= len(g.samples)
		s.queue[0] = group{}
		s.queue = s.queue[1:]
		s.mu.Unlock()
	} else {
		last := s.last
		s.mu.Unlock()
		if g, err = t.read(last); err != nil {
			return 0, nil, err
		}
	}
	t.next, t.stored = g.seq+1, g.stored
	return g.seq, s.e.withoutForgotten(g), nil
}

// read reads the next group from the disk, up to the sequence last.
func (t *Partition) read(last uint64) (g group, err error) {
	s := t.s
	lower, _ := telemetrySpan(s.number, t.next)
	it, err := s.e.own().iterator(lower, telemetryKey(s.number, last+1))
	if err != nil {
		return g, err
	}
	defer it.Close()
	if !it.First() {
		if err := it.Error(); err != nil {
			return g, s.e.readError(err)
		}
		// The group was trimmed. Only folded groups are trimmed.
		return group{partition: s.number, seq: last, stored: t.stored}, nil
	}
	value, err := it.ValueAndErr()
	if err == nil {
		g, err = decodeGroup(s.number, it.Key(), value)
	}
	if err == nil && g.before >= t.next {
		err = fmt.Errorf("%w: telemetry up to %d is missing", codec.ErrDamaged, g.before)
	}
	return g, s.e.readError(err)
}

// withoutForgotten returns the samples of a group, except those of forgotten vehicles.
func (e *Engine) withoutForgotten(g group) []vehicle.Sample {
	return slices.DeleteFunc(g.samples, func(x vehicle.Sample) bool {
		return e.forgotten.Covers(x.Vehicle, g.seq, e.dir.Made)
	})
}

func (t *Partition) Stored() time.Time { return t.stored }

// Waiting implements [store.Partition]: it reports whether a group waits to be folded.
func (t *Partition) Waiting() bool { return t.next <= t.s.stored() }

// Commit implements [store.Partition]. It does not wait for the disk, because after a crash the
// samples are folded again. After a fatal error of Pebble, Commit returns only when ctx ends.
func (t *Partition) Commit(
	ctx context.Context, seq uint64, states map[vehicle.ID][]byte, more bool,
) error {
	if seq == 0 && len(states) == 0 {
		return t.check()
	}
	start := time.Now()
	e, s := t.s.e, t.s.e.streams[codec.States]
	b := e.db.NewBatchWithSize(len(states) * usualStateBytes)
	last, n := s.reserve(len(states)), uint64(0)
	sealed, value := make([]byte, 0, 2*usualStateBytes), make([]byte, 0, 2*usualStateBytes) // reused
	for id, packed := range states {
		subject := codec.StateSubject(t.s.number, id)
		sealed = codec.Seal(subject, append(append(sealed[:0], 0), packed...))
		key := e.keyOf(s.letter, subject)
		value = appendRecord(value[:0], last-n, seq, subject, sealed)
		err := b.Set(key, value, nil)
		if err == nil {
			var state vehicle.State
			state, err = codec.DecodeState(packed)
			value = appendAnswers(value[:0], id, &state)
		}
		if err == nil {
			err = b.Set(answersKey(key), value, nil)
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
		n++
	}
	moves := seq != 0 && !more
	key := aheadKey(t.s.number)
	if moves {
		key = cursorKey(t.s.number)
	}
	if seq != 0 {
		if err := b.Set(key, binary.BigEndian.AppendUint64(nil, seq), nil); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	err := s.do(ctx, func() error {
		defer b.Close()
		if err := t.check(); err != nil {
			return err
		}
		for id := range states {
			if e.forgotten.Has(id) { // taken from the owner's memory before Fence
				t.lose(store.ErrRecalled)
				return t.check()
			}
		}
		if err := s.commit(b, last, func(b *pebble.Batch) error { return b.Commit(pebble.NoSync) }); err != nil {
			return err
		}
		if moves {
			t.s.cursor.Store(seq)
		}
		return nil
	})
	if err != nil {
		if errors.Is(err, errWritesFailed) {
			<-ctx.Done() // waits until the process ends, which it does when the disk accepts writes again
			return ctx.Err()
		}
		return err
	}
	e.metrics.Fold(len(states), time.Since(start))
	return nil
}

// usualStateBytes is the approximate size in bytes of a stored state with its answers.
const usualStateBytes = 800

// Close implements [store.Partition]: it stops the queueing of new samples for this owner.
func (t *Partition) Close() {
	t.closed.Store(true)
	t.s.ownership.RLock()
	defer t.s.ownership.RUnlock()
	if t.s.taken == t {
		t.s.resetQueue(false)
	}
}

const (
	settleWithin = 20 * time.Second // a commit can take seconds on a very busy machine
	settlePoll   = time.Millisecond
)

// Settle implements [store.Engine], with the time limit settleWithin. It skips partitions that are
// not being folded, because they have no folded states in memory.
func (e *Engine) Settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for n, s := range e.partitions {
		answered := s.folded()
		for e.Folding()[n] && s.cursor.Load() < answered {
			select {
			case s.settle <- struct{}{}:
			default:
			}
			select {
			case <-ctx.Done():
				return
			case <-e.writesFailed.Done():
				return
			case <-time.After(settlePoll):
			}
		}
	}
}

// stateWithin is long, because the owner may be reading states or waiting for a checkpoint.
const stateWithin = 5 * time.Second

// Unstored implements [store.Engine]. It asks the owner of the vehicle's partition, unless the
// cursor says that all folded states are stored, or nobody folds the partition.
func (e *Engine) Unstored(ctx context.Context, id vehicle.ID) (vehicle.State, bool) {
	n := codec.PartitionOf(id, len(e.partitions))
	s := e.partitions[n]
	if s.cursor.Load() >= s.folded() || !e.Folding()[n] {
		return vehicle.State{}, false
	}
	x, ok := s.ask(ctx, id, false)
	if !ok || x == nil {
		return vehicle.State{}, false
	}
	return *x, true
}

// ask asks the owner for the state of a vehicle, and to drop it if drop is set. ok is false if the
// owner does not reply in time.
func (s *partitionState) ask(ctx context.Context, id vehicle.ID, drop bool) (x *vehicle.State, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	reply := make(chan *vehicle.State, 1)
	select {
	case s.asked <- &store.StateRequest{Vehicle: id, Drop: drop, Reply: func(x *vehicle.State) { reply <- x }}:
	case <-ctx.Done():
		return nil, false
	case <-s.e.halted.Done():
		return nil, false
	}
	select {
	case x = <-reply:
		return x, true
	case <-ctx.Done():
		return nil, false
	}
}
