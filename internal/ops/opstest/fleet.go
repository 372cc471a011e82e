package opstest

import (
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/vehicle"
)

// Fleet is a fleet table that also holds the vids, as lists of vehicles need them. Make one with
// [NewFleet].
type Fleet struct{ *fleet.Table }

// NewFleet returns an empty fleet.
func NewFleet() Fleet {
	t := fleet.New()
	t.KeepNames(1 << 20)
	return Fleet{t}
}

// Put sets a vehicle's verdicts.
func (f Fleet) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	f.Table.Put(id, fleet.Answer{Driving: d, Throttle: t})
}
