package access

import (
	"maps"
	"slices"

	"example.org/carstate/internal/vehicle"
)

// Vehicles is the set that a token or a source covers. It is immutable; the zero value is empty.
type Vehicles struct {
	all bool
	set map[vehicle.ID]struct{}
}

func AllVehicles() Vehicles { return Vehicles{all: true} }

func VehicleSet(ids ...vehicle.ID) Vehicles {
	set := make(map[vehicle.ID]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return Vehicles{set: set}
}

// NamedOrAll covers all vehicles if the given ones are more than [MaxNamed].
func NamedOrAll(ids ...vehicle.ID) Vehicles {
	if v := VehicleSet(ids...); v.Len() <= MaxNamed {
		return v
	}
	return AllVehicles()
}

func (v Vehicles) All() bool { return v.all }

// Len is 0 if v covers all vehicles.
func (v Vehicles) Len() int { return len(v.set) }

func (v Vehicles) none() bool { return !v.all && len(v.set) == 0 }

// Include does the same work for either result, and does not allocate.
func (v Vehicles) Include(id vehicle.ID) bool {
	_, ok := v.set[id]
	return ok || v.all
}

func (v Vehicles) IncludeBytes(vid []byte) bool {
	_, ok := v.set[vehicle.ID(vid)]
	return ok || v.all
}

func (v Vehicles) Sorted() []vehicle.ID { return slices.Sorted(maps.Keys(v.set)) }

func (v Vehicles) With(ids ...vehicle.ID) Vehicles {
	if v.all {
		return v
	}
	with := VehicleSet(ids...)
	maps.Copy(with.set, v.set)
	return with
}

// Without cannot remove vehicles from all.
func (v Vehicles) Without(ids ...vehicle.ID) Vehicles {
	v.set = maps.Clone(v.set)
	for _, id := range ids {
		delete(v.set, id)
	}
	return v
}

// A sandbox token gets answers about these vehicles, as in docs/query-api.md. A real car may have
// the same vid.
const (
	SandboxNormal      = "SandboxNormal"
	SandboxSlow        = "SandboxSlow"
	SandboxJam         = "SandboxJam"
	SandboxAnomaly     = "SandboxAnomaly"
	SandboxHealthy     = "SandboxHealthy"
	SandboxUnknown     = "SandboxUnknown"
	SandboxStale       = "SandboxStale"
	SandboxParked      = "SandboxParked"
	SandboxCycle       = "SandboxCycle"
	SandboxRateLimited = "SandboxRateLimited"
	SandboxUnavailable = "SandboxUnavailable"
)

func SandboxVehicles() Vehicles {
	return VehicleSet(
		SandboxNormal, SandboxSlow, SandboxJam, SandboxAnomaly, SandboxHealthy,
		SandboxUnknown, SandboxStale, SandboxParked, SandboxCycle, SandboxRateLimited, SandboxUnavailable,
	)
}
