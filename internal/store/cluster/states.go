package cluster

import (
	"context"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// FollowStates calls put for the stored state of every vehicle and then for
// every change, until the context ends. The zero state means that the vehicle is
// forgotten. caughtUp is called once, after all that was stored at the start.
func (e *Engine) FollowStates(ctx context.Context, put func(vehicle.ID, vehicle.State), caughtUp func()) error {
	return e.followStates(ctx, newFeed(e, codec.States), put, caughtUp)
}

// FollowCursors is FollowStates for a node that has no use for the states. It
// brings the cursors, by which a node that folds hears of what was forgotten, and
// the heartbeats, by which any node knows how far it is behind.
func (e *Engine) FollowCursors(ctx context.Context, caughtUp func()) error {
	f := newFeed(e, codec.States)
	f.filters = []string{"cursor.*", codec.HeartbeatSubject(codec.States)}
	return e.followStates(ctx, f, func(vehicle.ID, vehicle.State) {}, caughtUp)
}

func (e *Engine) followStates(ctx context.Context, f *feed, put func(vehicle.ID, vehicle.State), caughtUp func()) error {
	f.caughtUp = caughtUp
	e.followed.Store(f)
	f.apply = func(r store.Record) error {
		id, ok := codec.VehicleOfState(r.Subject)
		if !ok {
			e.recall(r) // if it is a cursor
			return nil
		}
		// A server that rebuilt its index after a crash may bring back the state of a
		// vehicle whose marker is gone.
		if codec.IsMarker(r.Body) || e.forgotten.Has(id) {
			put(id, vehicle.State{})
			return nil
		}
		s, err := codec.DecodeState(r.Body)
		if err != nil {
			return err
		}
		put(id, s)
		return nil
	}
	return f.run(ctx)
}

// AwaitState waits until FollowStates has passed a sequence, if it runs.
func (e *Engine) AwaitState(ctx context.Context, seq uint64) error {
	f := e.followed.Load()
	if f == nil {
		return nil
	}
	return f.Wait(ctx, seq)
}
