package stream

import (
	"context"

	"carstate/internal/vehicle"
)

// FollowStates calls put for the stored state of every vehicle and then for
// every change, until the context ends. The zero state means that the vehicle is
// forgotten. caughtUp is called once, after all that was stored at the start.
// What [Config.Answers] has taken in is not repeated.
func (e *Engine) FollowStates(ctx context.Context, put func(vehicle.ID, vehicle.State), caughtUp func()) error {
	f := newFeed(e, States)
	f.caughtUp = caughtUp
	if p := e.preloaded; p != nil {
		e.preloaded = nil
		f.created = p.created
		f.advance(p.last) // as if the feed had brought them
	}
	e.followed.Store(f)
	f.apply = func(r record) error {
		id, ok := vehicleOfState(r.subject)
		if !ok {
			e.recall(r) // if it is a cursor
			return nil
		}
		if isMarker(r.body) {
			put(id, vehicle.State{})
			return nil
		}
		s, err := decodeState(r.body)
		if err != nil {
			return err
		}
		put(id, s)
		return nil
	}
	return f.run(ctx)
}

// State reads the stored state of one vehicle; ok is false if it has none.
func (e *Engine) State(ctx context.Context, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	body, rev, err := e.lastRecord(ctx, States, stateSubject(PartitionOf(id, e.partitions), id))
	if err != nil || rev == 0 || isMarker(body) {
		return vehicle.State{}, false, err
	}
	s, err = decodeState(body)
	return s, err == nil, err
}
