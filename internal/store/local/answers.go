package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"carstate/internal/periodic"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Answers is the table of the latest verdicts of every vehicle, from which queries are answered.
// While the engine opens, it passes the stored verdicts of every vehicle to Put.
type Answers interface {
	Put(vehicle.ID, vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	// Get returns the verdicts of a vehicle. If the table does not have the vehicle, they are zero.
	Get(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
}

// Answer publishes a vehicle's new state to queries, as [store.Partition] describes. The state need
// not be stored yet, because its samples are on disk: after a crash, the next start folds them
// again before the node answers queries.
//
// After a restore or a forget, the owner takes the partition again, and folds all samples after the
// stored cursor a second time. Queries have already received the states of these samples, and
// perhaps newer ones. If Answer published such a state again, the event time of a vehicle's answer
// could decrease. So Answer ignores states until the owner reaches a sample that was never folded
// before. A forgotten vehicle is an exception, because its answer was removed.
func (t *Partition) Answer(id vehicle.ID, state *vehicle.State) {
	e := t.s.e
	t.s.ownership.RLock()
	defer t.s.ownership.RUnlock()
	if t.lost() != nil || t.s.wasAnswered(t.next-1) && !e.forgotten.Has(id) {
		return
	}
	e.putMu.RLock()
	defer e.putMu.RUnlock()
	switch {
	case e.put == nil:
	case t.s.restored.Load() != 0:
		e.putUnlessOlder(id, state)
	default:
		e.put(id, state)
	}
}

// wasAnswered reports whether all samples up to sequence seq were folded before, by the present
// owner of the partition or an earlier one, and their states were published to queries.
func (s *partitionState) wasAnswered(seq uint64) bool { return seq <= s.folded() }

// folded returns the sequence up to which all samples are folded into states, whether or not these
// states are stored.
func (s *partitionState) folded() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// FollowStates implements [store.Engine]. If [Config.Answers] is set, the engine has already passed
// all stored verdicts to it while opening, so FollowStates calls put only for later changes.
// FollowStates calls caughtUp when all telemetry that was stored when the engine opened is folded.
// So no answer is older than an answer that was given before a crash. If Config.Answers is nil, as
// in tests, FollowStates calls put for every stored state and then caughtUp, without waiting for
// telemetry to be folded.
func (e *Engine) FollowStates(ctx context.Context, put func(vehicle.ID, *vehicle.State), caughtUp func()) error {
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

// putAll calls put for every stored state, except those of forgotten vehicles. It ends at the first
// damaged state and returns an error; the engine then fails.
func (e *Engine) putAll(ctx context.Context, put func(vehicle.ID, *vehicle.State)) error {
	from, to := span(letters[codec.States])
	return e.own().scan(ctx, from, to, func(r store.Record) error {
		id, ok := codec.VehicleOfState(r.Subject)
		if !ok || codec.IsMarker(r.Body) || e.forgotten.Has(id) {
			return nil
		}
		s, err := codec.DecodeState(r.Body)
		if err != nil {
			return e.readError(err)
		}
		put(id, &s)
		return nil
	})
}

// foldedPoll is the interval at which awaitFolded checks whether the telemetry is folded.
const foldedPoll = 5 * time.Millisecond

// awaitFolded waits until all telemetry that was stored when the engine was opened is folded into
// states. It returns false if the context ends first.
func (e *Engine) awaitFolded(ctx context.Context) bool {
	for _, s := range e.partitions {
		for s.folded() < s.atOpen {
			if periodic.Pause(ctx, foldedPoll) != nil {
				return false
			}
		}
	}
	return true
}

// AwaitState implements [store.Engine]: it waits for a stored state to reach queries. It returns at
// once, because [Engine.Store] returns only after the function put of [Engine.FollowStates] has
// received the state.
func (e *Engine) AwaitState(context.Context, uint64) error { return nil }

// AwaitTombstones implements [store.Engine]. It returns at once, because a feed applies each new
// record of SOURCES before [Engine.Store] returns; if it cannot, the engine fails.
func (e *Engine) AwaitTombstones(context.Context) error { return e.Alive() }

// loadAnswers passes the stored verdicts of every vehicle, except forgotten ones, to answers. The
// calls of Put are concurrent.
func (e *Engine) loadAnswers(ctx context.Context, answers Answers) error {
	var loading sync.WaitGroup
	var errs [loaders]error
	from, to := span(letterAnswers)
	for n := range loaders { // keys are hashes, so the parts are about equally large
		lower, upper := append(from, byte(n*256/loaders)), to
		if n < loaders-1 {
			upper = append(from, byte((n+1)*256/loaders))
		}
		loading.Go(func() {
			errs[n] = e.own().iterate(ctx, lower, upper, func(_, value []byte) error {
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

// putRecord publishes a record of STATES that [Engine.Store] has stored, such as a restored state:
// it passes the state to the function put of [Engine.FollowStates]. However, the vehicle's current
// answer may come from a folded state that is newer than the restored state and not stored yet. In
// that case, putRecord leaves the answer unchanged and adds the vehicle to the set unmerged. The
// vehicle's next committed state then becomes the answer (see putMerged).
func (e *Engine) putRecord(r store.Record) {
	id, ok := codec.VehicleOfState(r.Subject)
	if !ok {
		return
	}
	p := e.partitions[codec.PartitionOf(id, len(e.partitions))]
	var s vehicle.State
	if !codec.IsMarker(r.Body) {
		var err error
		if s, err = codec.DecodeState(r.Body); err != nil {
			e.fail(err)
			return
		}
	}
	if p.taken != nil && s.Time != 0 {
		p.restored.CompareAndSwap(0, r.Seq)
	}
	e.putMu.Lock()
	defer e.putMu.Unlock()
	if e.put == nil {
		return
	}
	delete(p.unmerged, id)
	if codec.IsMarker(r.Body) || e.forgotten.Has(id) {
		e.put(id, &vehicle.State{})
		return
	}
	if !e.putUnlessOlder(id, &s) {
		p.unmerged[id] = struct{}{}
	}
}

// putUnlessOlder publishes a state, unless the state is older than the vehicle's current answer,
// and reports whether it did. The caller has locked putMu, for reading or writing.
func (e *Engine) putUnlessOlder(id vehicle.ID, s *vehicle.State) bool {
	if e.config.Answers != nil {
		driving, throttle := e.config.Answers.Get(id)
		if s.Time < driving.Time || s.Time < throttle.Time {
			return false
		}
	}
	e.put(id, s)
	return true
}

// putMerged receives states that were just committed. It publishes those of the vehicles in the set
// unmerged, unless a vehicle's current answer is newer, and removes these vehicles from unmerged. A
// vehicle is in unmerged if its answer was newer than a restored state (see [Engine.putRecord]).
// Answer has not published these states, because their samples were already folded and answered
// before the restore.
func (s *partitionState) putMerged(states map[vehicle.ID]*vehicle.State) {
	if len(s.unmerged) == 0 {
		return
	}
	s.e.putMu.Lock()
	defer s.e.putMu.Unlock()
	for id, state := range states {
		if _, ok := s.unmerged[id]; ok {
			delete(s.unmerged, id)
			s.e.putUnlessOlder(id, state)
		}
	}
}
