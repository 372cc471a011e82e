package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// Answers is the table of the latest verdicts of every vehicle, from which queries are answered.
// While the engine opens, it passes the stored verdicts of every vehicle to Put.
type Answers interface {
	// Grow is called first, with an estimate of the number of vehicles.
	Grow(vehicles int)
	Put(vehicle.ID, vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	// Get returns the verdicts of a vehicle. If the table does not have the vehicle, they are zero.
	Get(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
}

// Answer implements [store.Partition]. After a restore or a forget, samples are folded a second
// time, so it ignores states that are older than the vehicle's answer (see publish).
func (t *Partition) Answer(id vehicle.ID, state *vehicle.State) {
	t.s.ownership.RLock()
	defer t.s.ownership.RUnlock()
	if t.check() != nil {
		return
	}
	t.s.e.putMu.RLock()
	defer t.s.e.putMu.RUnlock()
	t.s.e.publish(id, state)
}

// publish passes a state to put of [Engine.FollowStates], unless the state is older than the
// vehicle's current answer. An answer from the future, which comes from a wrong clock, is replaced
// by any state. The caller has locked putMu, for reading or writing.
func (e *Engine) publish(id vehicle.ID, s *vehicle.State) {
	if e.put == nil {
		return
	}
	var was vehicle.UnixMilli // time of the current answer; 0 if there is none
	if e.config.Answers != nil {
		driving, throttle := e.config.Answers.Get(id)
		was = max(driving.Time, throttle.Time)
	}
	if s.Time < was && was <= vehicle.At(e.now().Add(vehicle.MaxAhead)) {
		return
	}
	e.put(id, s)
}

// folded returns the sequence up to which all samples are folded into states, whether or not these
// states are stored.
func (s *partitionState) folded() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// FollowStates implements [store.Engine]. If [Config.Answers] is set, it has all stored verdicts
// already, and FollowStates calls put only for later changes. It calls caughtUp when all telemetry
// that was stored when the engine opened is folded. So no answer is older than one that was given
// before a crash. If Config.Answers is nil, as in tests, FollowStates does not wait for that.
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
	said := time.Now()
	for e.config.Answers != nil {
		p := e.Progress()
		if p.Folded == p.Groups {
			break
		}
		if periodic.Pause(ctx, foldedPoll) != nil {
			return nil
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			e.log.Info("starting: stored telemetry is folded again before queries are answered",
				"states_read", p.States, "groups_folded", p.Folded, "groups", p.Groups)
		}
	}
	caughtUp()
	<-ctx.Done()
	return nil
}

// putAll calls put for every stored state, except those of forgotten vehicles.
func (e *Engine) putAll(ctx context.Context, put func(vehicle.ID, *vehicle.State)) error {
	from, to := span(letters[codec.States])
	return e.own().iterate(ctx, from, to, e.own().records(func(r store.Record) error {
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
	}))
}

// progressEvery is the interval at which a start logs its progress.
const progressEvery = 5 * time.Second

// Progress says how far a start is.
type Progress struct {
	States         int64  // states that owners of partitions have read
	Folded, Groups uint64 // of the groups of telemetry that were not folded when the engine opened
}

// Progress returns how far the start is.
func (e *Engine) Progress() Progress {
	p := Progress{States: e.statesRead.Load()}
	for _, s := range e.partitions {
		p.Groups += s.atOpen - s.cursorAtOpen
		p.Folded += min(s.folded(), s.atOpen) - s.cursorAtOpen
	}
	return p
}

// foldedPoll is the interval at which FollowStates checks whether the telemetry is folded.
const foldedPoll = 5 * time.Millisecond

// AwaitState returns at once, because [Engine.Store] returns only after put has received the state.
func (e *Engine) AwaitState(context.Context, uint64) error { return nil }

// AwaitTombstones returns at once, because a feed applies each new record before [Engine.Store]
// returns; if it cannot, the engine fails.
func (e *Engine) AwaitTombstones(context.Context) error { return e.Alive() }

// loaders is the number of goroutines that share the reading of the answers.
const loaders = 4

// loadAnswers passes the stored verdicts of every vehicle, except forgotten ones, to answers. The
// calls of Put are concurrent.
func (e *Engine) loadAnswers(ctx context.Context, answers Answers) error {
	from, to := span(letterAnswers)
	answers.Grow(e.mostKeys(from, to))
	var loading sync.WaitGroup
	var errs [loaders]error
	for n := range loaders { // keys are hashes, so the parts are about equally large
		lower, upper := append(from, byte(n*256/loaders)), to
		if n < loaders-1 {
			upper = append(from, byte((n+1)*256/loaders))
		}
		loading.Go(func() {
			errs[n] = e.own().iterate(ctx, lower, upper, func(value []byte) error {
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

// mostKeys returns the number of keys of a range in that level of the database that has most of
// them. In each level below 0, a key occurs once. If tables cannot be read, the result is 0.
func (e *Engine) mostKeys(from, to []byte) (most int) {
	levels, err := e.db.SSTables(pebble.WithKeyRangeFilter(from, to), pebble.WithProperties())
	if err != nil || len(levels) == 0 {
		return 0
	}
	for _, tables := range levels[1:] {
		n := 0
		for _, t := range tables {
			n += int(t.Properties.NumEntries - t.Properties.NumDeletions)
		}
		most = max(most, n)
	}
	return most
}

// putRecord publishes a record of STATES that [Engine.Store] has stored, such as a restored state.
func (e *Engine) putRecord(r store.Record) {
	id, ok := codec.VehicleOfState(r.Subject)
	if !ok {
		return
	}
	e.putMu.Lock()
	defer e.putMu.Unlock()
	if codec.IsMarker(r.Body) || e.forgotten.Has(id) {
		if e.put != nil {
			e.put(id, &vehicle.State{})
		}
		return
	}
	s, err := codec.DecodeState(r.Body)
	if err != nil {
		e.fail(err)
		return
	}
	e.publish(id, &s)
}
