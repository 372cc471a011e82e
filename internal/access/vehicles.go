package access

import (
	"iter"
	"maps"
	"slices"

	"carstate/internal/vehicle"
)

// Vehicles says for which vehicles a token or a source counts: all, or those
// of a set. The zero value counts for none. A Vehicles is never changed once
// made; [Vehicles.With] and [Vehicles.Without] return another.
type Vehicles struct {
	all bool
	set map[vehicle.ID]struct{}
}

// AllVehicles counts for every vehicle, present and future.
func AllVehicles() Vehicles { return Vehicles{all: true} }

// VehicleSet counts for the vehicles named. They need not have reported yet.
func VehicleSet(ids ...vehicle.ID) Vehicles {
	set := make(map[vehicle.ID]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return Vehicles{set: set}
}

// All reports whether it counts for every vehicle.
func (v Vehicles) All() bool { return v.all }

// Len is the number of vehicles named, 0 for all.
func (v Vehicles) Len() int { return len(v.set) }

// none reports whether it counts for no vehicle.
func (v Vehicles) none() bool { return !v.all && len(v.set) == 0 }

// Include reports whether it counts for the vehicle. It does the same work
// whatever the answer and does not allocate.
func (v Vehicles) Include(id vehicle.ID) bool {
	_, ok := v.set[id]
	return ok || v.all
}

// IncludeBytes is Include for a vid still in a request's buffer.
func (v Vehicles) IncludeBytes(vid []byte) bool {
	_, ok := v.set[vehicle.ID(vid)]
	return ok || v.all
}

// Sorted yields the vehicles named in the order of their text.
func (v Vehicles) Sorted() iter.Seq[vehicle.ID] {
	return slices.Values(slices.Sorted(maps.Keys(v.set)))
}

// With returns v and the vehicles named. All stays all.
func (v Vehicles) With(ids ...vehicle.ID) Vehicles {
	if v.all {
		return v
	}
	set := maps.Clone(v.set)
	if set == nil {
		set = make(map[vehicle.ID]struct{}, len(ids))
	}
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return Vehicles{set: set}
}

// Without returns v less the vehicles named. All cannot lose a few: ok is false
// and v comes back as it is.
func (v Vehicles) Without(ids ...vehicle.ID) (_ Vehicles, ok bool) {
	if v.all {
		return v, false
	}
	set := maps.Clone(v.set)
	for _, id := range ids {
		delete(set, id)
	}
	return Vehicles{set: set}, true
}
