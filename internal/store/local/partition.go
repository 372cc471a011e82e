package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

type partitionState struct {
	e                    *Engine
	number               int
	atOpen, cursorAtOpen uint64 // at Open: the last sequence, and that of the cursor

	mu       sync.Mutex // guards the fields down to checkpoints
	last     uint64
	arrived  chan struct{}
	answered uint64 // everything up to this sequence is folded

	checkpoints []store.Checkpoint

	// ownership guards taken and name. It is held for reading while a checkpoint is stored.
	ownership sync.RWMutex
	taken     *Partition // of the last Take; nil if there was none
	name      string     // of the owner; "" if released

	live atomic.Bool // an owner has published all answers
	// Telemetry up to cursor may be trimmed: the checkpoint that was read or stored last has all of
	// it.
	cursor atomic.Uint64
}

type cursorRecord struct {
	Checkpoints []store.Checkpoint `json:"checkpoints"`
}

func (e *Engine) loadPartitions() error {
	e.unfolded = store.NewUnfolded(e.dir.Partitions, 0, time.Now)
	for n := range e.dir.Partitions {
		p := &partitionState{e: e, number: n, arrived: make(chan struct{})}
		r, err := e.last(e.keyOf(letters[codec.States], codec.CursorSubject(n)))
		if err != nil {
			return e.readError(err)
		}
		var is cursorRecord
		if r.Seq != 0 && json.Unmarshal(r.Body, &is) != nil {
			return e.dir.damaged(fmt.Sprintf("the cursor of partition %d is invalid", n))
		}
		p.checkpoints = is.Checkpoints
		cursor := uint64(0)
		if len(p.checkpoints) > 0 {
			cursor = p.checkpoints[len(p.checkpoints)-1].Seq
		}
		if p.last, err = e.lastGroup(n, cursor); err != nil {
			return err
		}
		p.cursor.Store(cursor)
		p.last = max(p.last, cursor) // all telemetry of the partition may have been trimmed
		p.atOpen, p.cursorAtOpen, p.answered = p.last, cursor, cursor
		e.partitions = append(e.partitions, p)
	}
	return nil
}

func (s *partitionState) stored() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *partitionState) advance(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = seq
	close(s.arrived)
	s.arrived = make(chan struct{})
}

type Partition struct {
	s     *partitionState
	owner store.Owner
	end   uint64
	next  uint64 // sequence of the first group that Next has not returned
	room  []vehicle.Sample

	owned context.Context // ends with Close, and when another owner has taken the partition
	lose  context.CancelFunc
}

func (e *Engine) Take(
	_ context.Context, n int, name string, owner store.Owner, free func(holder string) bool,
) (store.Partition, error) {
	s := e.partitions[n]
	t := &Partition{s: s, owner: owner}
	t.owned, t.lose = context.WithCancel(context.Background())
	s.ownership.Lock()
	defer s.ownership.Unlock()
	if !free(s.name) {
		return nil, fmt.Errorf("cannot take partition %d: %w", n, store.ErrHeld)
	}
	if s.taken != nil {
		s.taken.lose()
	}
	t.end, t.next, s.taken, s.name = s.stored(), s.cursor.Load()+1, t, name
	return t, nil
}

func (t *Partition) check() error {
	if t.owned.Err() != nil {
		return fmt.Errorf("partition %d: %w", t.s.number, store.ErrFenced)
	}
	return nil
}

func (e *Engine) Release(_ context.Context, n int, name string) error {
	s := e.partitions[n]
	s.ownership.Lock()
	defer s.ownership.Unlock()
	if s.name == name && s.taken != nil {
		s.name = ""
		s.taken.lose()
	}
	return nil
}

func (e *Engine) Folding() map[int]bool {
	owned := make(map[int]bool)
	for n, s := range e.partitions {
		if s.owner() != nil {
			owned[n] = true
		}
	}
	return owned
}

func (s *partitionState) owner() store.Owner {
	s.ownership.RLock()
	defer s.ownership.RUnlock()
	if s.taken == nil || s.taken.owned.Err() != nil {
		return nil
	}
	return s.taken.owner
}

func (e *Engine) Ask(ctx context.Context, n int, q *store.Question) (store.Reply, error) {
	owner := e.partitions[n].owner()
	if owner == nil {
		return store.Reply{}, store.ErrNoOwner
	}
	// The owner has all tombstones: feeds apply them before [Engine.Store] returns, or the engine
	// fails.
	if err := e.Alive(); err != nil && q.ByTombstones() {
		return store.Reply{}, err
	}
	r, err := owner(ctx, q)
	if errors.Is(err, store.ErrFenced) { // the owner has closed meanwhile, and the next may answer
		err = store.ErrNoOwner
	}
	return r, err
}

func (t *Partition) Stored() (all []store.Checkpoint, newest uint64) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.s.checkpoints, t.end
}

// After damage, the engine fails, because an earlier checkpoint would need the same telemetry.
func (t *Partition) Seek(_ context.Context, c store.Checkpoint) error {
	t.next = c.Seq + 1
	t.s.cursor.Store(min(c.Seq, t.s.cursor.Load()))
	_, err := t.read(t.end)
	if all, _ := t.Stored(); err == nil && c.Number == 0 && len(all) > 0 && all[0].Restored {
		err = t.s.e.readError(fmt.Errorf("%w: the checkpoints of partition %d", codec.ErrDamaged, t.s.number))
	}
	return err
}

func (t *Partition) Next(ctx context.Context) (store.Group, error) {
	s := t.s
	for {
		if err := cmp.Or(t.check(), ctx.Err()); err != nil {
			return store.Group{}, err
		}
		s.mu.Lock()
		// The caller has folded what Next returned before.
		s.answered = max(s.answered, t.next-1)
		last, answered, arrived := s.last, s.answered, s.arrived
		s.mu.Unlock()
		s.e.unfolded.Fold(s.number, answered)
		if last >= t.next {
			g, err := t.read(last)
			if err != nil {
				return store.Group{}, err
			}
			t.next, t.room = g.Seq+1, g.Samples
			return g, nil
		}
		select {
		case <-arrived:
		case <-t.owned.Done():
		case <-ctx.Done():
		}
	}
}

// read returns an empty group if all up to last is folded.
func (t *Partition) read(last uint64) (g store.Group, err error) {
	before := last
	keys := pebble.KeyRange{Start: telemetryKey(t.s.number, t.next), End: telemetryKey(t.s.number, last+1)}
	for is, failed := range t.s.e.walk(context.Background(), keys, forwards) {
		if err = failed; err == nil {
			g, before, err = decodeGroup(t.s.number, is.key, is.value, t.room)
		}
		break
	}
	if fenced := t.check(); fenced != nil {
		return g, fenced // the next owner may have trimmed it
	}
	if err == nil && before >= t.next {
		err = fmt.Errorf("%w: telemetry from %d to %d is no longer stored", codec.ErrDamaged, t.next, before)
	}
	return g, t.s.e.readError(err)
}

// After a fatal error of Pebble, Save returns only when ctx ends.
func (t *Partition) Save(
	ctx context.Context, c store.Checkpoint, pieces iter.Seq[store.Piece], erase bool,
) (store.Checkpoint, error) {
	if c.Number == 0 {
		return c, t.check()
	}
	s, start := t.s, time.Now()
	for piece := range pieces {
		if err := t.owning(func() error { return s.store(ctx, c.Seal(s.number, c.Pieces, piece)) }); err != nil {
			return c, err
		}
		c.Add(piece)
	}
	before, _ := t.Stored()
	all, dropped := store.AddCheckpoint(before, c, erase)
	w, _ := store.AppendJSON(nil, codec.CursorSubject(s.number), cursorRecord{all}) // cannot fail: only numbers
	// owning keeps the next owner from reading a checkpoint that is being removed.
	return c, t.owning(func() error {
		if err := s.store(ctx, w[0]); err != nil {
			return err
		}
		s.mu.Lock()
		s.checkpoints = all
		s.mu.Unlock()
		s.cursor.Store(c.Seq)
		s.e.metrics.Checkpoint(c.Bytes, time.Since(start))
		return c.ClearOld(ctx, s.e, 0, s.number, dropped, erase)
	})
}

// No other owner can take the partition while do runs.
func (t *Partition) owning(do func() error) error {
	t.s.ownership.RLock()
	defer t.s.ownership.RUnlock()
	if err := t.check(); err != nil {
		return err
	}
	return do()
}

func (s *partitionState) store(ctx context.Context, w store.Write) error {
	for s.e.reserve.full.Load() {
		if err := periodic.Pause(ctx, watchEvery); err != nil {
			return err
		}
	}
	_, err := s.e.Store(ctx, codec.States, []store.Write{w})
	if errors.Is(err, errWritesFailed) {
		<-ctx.Done() // until the process ends, once the disk accepts writes again
		return ctx.Err()
	}
	return err
}

func (t *Partition) Close() { t.lose() }
