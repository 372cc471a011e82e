package access

import (
	"iter"
	"maps"
	"slices"

	"example.org/carstate/internal/vehicle"
)

// Vehicles is the set of vehicles that a token or a source covers: all vehicles, or those in a
// list. The zero value covers none. A Vehicles is immutable; [Vehicles.With] and [Vehicles.Without]
// return a new one.
type Vehicles struct {
	all bool
	set map[vehicle.ID]struct{}
}

// AllVehicles returns a Vehicles that covers every vehicle, including future ones.
func AllVehicles() Vehicles { return Vehicles{all: true} }

// VehicleSet returns a Vehicles that covers the given vehicles, even without telemetry so far.
func VehicleSet(ids ...vehicle.ID) Vehicles {
	set := make(map[vehicle.ID]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return Vehicles{set: set}
}

// NamedOrAll returns a Vehicles that covers the given vehicles, or all if they are more than
// [MaxNamed].
func NamedOrAll(ids ...vehicle.ID) Vehicles {
	if v := VehicleSet(ids...); v.Len() <= MaxNamed {
		return v
	}
	return AllVehicles()
}

// All reports whether v covers every vehicle.
func (v Vehicles) All() bool { return v.all }

// Len returns the number of vehicles in the set; it is 0 if v covers all vehicles.
func (v Vehicles) Len() int { return len(v.set) }

func (v Vehicles) none() bool { return !v.all && len(v.set) == 0 }

// Include reports whether v covers the vehicle. It does the same work for either result and does
// not allocate.
func (v Vehicles) Include(id vehicle.ID) bool {
	_, ok := v.set[id]
	return ok || v.all
}

// IncludeBytes is like Include, for a vid that is a slice of bytes, such as a part of a request.
func (v Vehicles) IncludeBytes(vid []byte) bool {
	_, ok := v.set[vehicle.ID(vid)]
	return ok || v.all
}

// Sorted yields the vehicles in the set in ascending order, or none if v covers all vehicles.
func (v Vehicles) Sorted() iter.Seq[vehicle.ID] {
	return slices.Values(slices.Sorted(maps.Keys(v.set)))
}

// With returns v with the given vehicles added. If v covers all vehicles, With returns v.
func (v Vehicles) With(ids ...vehicle.ID) Vehicles {
	if v.all {
		return v
	}
	with := VehicleSet(ids...)
	maps.Copy(with.set, v.set)
	return with
}

// Without returns v without the given vehicles, and true. If v covers all vehicles, single vehicles
// cannot be removed: Without then returns v unchanged, and ok is false.
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
