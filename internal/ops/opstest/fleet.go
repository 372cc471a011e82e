package opstest

import (
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// Fleet is a fleet table that also holds the vids, as lists of vehicles need them. Make one with
// [NewFleet].
type Fleet struct {
	*fleet.Table
	Changes *ops.Changes // receives what Put changes; if nil, nothing does
}

// NewFleet returns an empty fleet.
func NewFleet() Fleet {
	t := fleet.New()
	t.KeepNames(1 << 20)
	return Fleet{Table: t}
}

// Put sets a vehicle's verdicts.
func (f Fleet) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	is := fleet.Answer{Driving: d, Throttle: t}
	was := f.Table.Put(id, is)
	if f.Changes != nil {
		f.Changes.Put(id, was, is)
	}
}
