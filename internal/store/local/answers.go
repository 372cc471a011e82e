package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Answers receives the stored verdicts of every vehicle while the engine opens.
type Answers interface {
	Put(vehicle.ID, vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	// Get returns the verdicts of a vehicle. They are zero if the vehicle is unknown.
	Get(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
}

// Answer implements [store.Partition]. It may publish a state before the state is stored, because
// the state's samples are on disk, and a start after a crash folds them again before the node
// answers.
//
// A restore or a forget recalls the partition (store.ErrRecalled). Samples whose states were not
// stored are then folded again, although their states were answers before and newer answers may
// exist. Answer skips such states, so that the event time of an answer never decreases. A forgotten
// vehicle is exempt, because it starts from nothing.
func (t *Partition) Answer(id vehicle.ID, state *vehicle.State) {
	t.answers.Store(true)
	e := t.s.e
	t.s.ownership.RLock()
	defer t.s.ownership.RUnlock()
	if t.lost() != nil || t.s.wasAnswered(t.next-1) && !e.forgotten.Has(id) {
		return
	}
	e.putMu.RLock()
	defer e.putMu.RUnlock()
	if e.put != nil {
		e.put(id, *state)
	}
}

// wasAnswered reports whether all samples up to the sequence seq were folded before, and the states
// were answers.
func (s *partitionState) wasAnswered(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seq <= s.answered
}

// putStates passes the states of a commit to the function put of FollowStates.
func (e *Engine) putStates(states map[vehicle.ID]*vehicle.State) {
	e.putMu.RLock()
	defer e.putMu.RUnlock()
	if e.put == nil {
		return
	}
	for id, s := range states {
		e.put(id, *s)
	}
}

// FollowStates implements [store.Engine]. If Answers is set, it has received all stored verdicts,
// so FollowStates reports only later changes. It calls caughtUp once all telemetry that was stored
// at the start is folded, so that no answer is older than one that was given before a crash. If
// Answers is nil, as in tests, FollowStates begins with the stored states. Answers that were given
// before the start but whose states were not stored are then missing.
func (e *Engine) FollowStates(ctx context.Context, put func(vehicle.ID, vehicle.State), caughtUp func()) error {
	e.putMu.Lock()
	e.put = put
	if e.config.Answers == nil {
		if err := e.putAll(ctx, put); err != nil {
			e.putMu.Unlock()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	e.putMu.Unlock()
	e.followOnce.Do(func() { close(e.following) })
	if e.config.Answers != nil && !e.awaitFolded(ctx) {
		return nil
	}
	caughtUp()
	<-ctx.Done()
	return nil
}

// putAll calls put for every stored state.
func (e *Engine) putAll(ctx context.Context, put func(vehicle.ID, vehicle.State)) error {
	from, to := span(letters[codec.States])
	return e.scan(ctx, from, to, func(r store.Record) error {
		id, ok := codec.VehicleOfState(r.Subject)
		if !ok || codec.IsMarker(r.Body) || e.forgotten.Has(id) {
			return nil
		}
		s, err := codec.DecodeState(r.Body)
		if err != nil {
			return e.readError(err)
		}
		put(id, s)
		return nil
	})
}

// foldedPoll is the interval at which awaitFolded checks.
const foldedPoll = 5 * time.Millisecond

// awaitFolded waits until all telemetry that was stored when the engine was opened is folded. It
// returns false if the context ends first.
func (e *Engine) awaitFolded(ctx context.Context) bool {
	for _, s := range e.partitions {
		for {
			s.mu.Lock()
			done := s.answered >= s.atOpen
			s.mu.Unlock()
			if done {
				break
			}
			select {
			case <-ctx.Done():
				return false
			case <-time.After(foldedPoll):
			}
		}
	}
	return true
}

// AwaitState implements [store.Engine]. It need not wait, because Store returns only after put has
// received the state.
func (e *Engine) AwaitState(context.Context, uint64) error { return nil }

// AwaitTombstones implements [store.Engine]. It need not wait, because the engine reads the
// tombstones while it opens, and applies each new tombstone before Store returns.
func (e *Engine) AwaitTombstones(context.Context) error { return nil }

// loadAnswers passes the stored verdicts of every vehicle to answers.
func (e *Engine) loadAnswers(ctx context.Context, answers Answers) error {
	var loading sync.WaitGroup
	var errs [loaders]error
	from, to := span(letterAnswers)
	for n := range loaders { // keys are hashes, so the parts have equal sizes
		lower, upper := append(from, byte(n*256/loaders)), to
		if n < loaders-1 {
			upper = append(from, byte((n+1)*256/loaders))
		}
		loading.Go(func() {
			errs[n] = e.iterate(ctx, lower, upper, func(_, value []byte) error {
				id, driving, throttle, err := decodeAnswers(value)
				if err != nil {
					return e.readError(err)
				}
				if !e.forgotten.Has(id) {
					answers.Put(id, driving, throttle)
				}
				return nil
			})
		})
	}
	loading.Wait()
	return errors.Join(errs[:]...)
}

// putRecord publishes a record of STATES that was not committed by a partition, but restored, for
// example: it passes the state to the function put that FollowStates received. But a restored state
// can be older than the current answer, if the state of that answer is not stored yet. Then the
// answer stays until a state that was folded from the restored state is committed.
func (e *Engine) putRecord(r store.Record) {
	id, ok := codec.VehicleOfState(r.Subject)
	if !ok {
		return
	}
	e.putMu.Lock()
	defer e.putMu.Unlock()
	if e.put == nil {
		return
	}
	p := e.partitions[codec.PartitionOf(id, len(e.partitions))]
	delete(p.unmerged, id)
	if codec.IsMarker(r.Body) || e.forgotten.Has(id) {
		e.put(id, vehicle.State{})
		return
	}
	s, err := codec.DecodeState(r.Body)
	if err != nil {
		e.fail(err)
		return
	}
	if !e.putUnlessOlder(id, s) {
		p.unmerged[id] = struct{}{}
	}
}

// putUnlessOlder publishes a state, unless the current answer is newer, and reports whether it did.
// The caller has locked putMu.
func (e *Engine) putUnlessOlder(id vehicle.ID, s vehicle.State) bool {
	if e.config.Answers != nil {
		driving, throttle := e.config.Answers.Get(id)
		if s.Time < driving.Time || s.Time < throttle.Time {
			return false
		}
	}
	e.put(id, s)
	return true
}

// putMerged publishes those states of a commit that were folded from a restored state. Answer does
// not publish them, because states of the same samples were answers before the restore.
func (s *partitionState) putMerged(states map[vehicle.ID]*vehicle.State) {
	if len(s.unmerged) == 0 {
		return
	}
	s.e.putMu.Lock()
	defer s.e.putMu.Unlock()
	for id, state := range states {
		if _, ok := s.unmerged[id]; ok {
			delete(s.unmerged, id)
			s.e.putUnlessOlder(id, *state)
		}
	}
}
