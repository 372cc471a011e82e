package store

import (
	"context"

	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// State reads the stored state of one vehicle; ok is false if it has none.
func State(ctx context.Context, e Engine, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	r, err := e.Last(ctx, codec.States, codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id))
	if err != nil || r.Seq == 0 || codec.IsMarker(r.Body) {
		return vehicle.State{}, false, err
	}
	s, err = codec.DecodeState(r.Body)
	return s, err == nil, err
}
