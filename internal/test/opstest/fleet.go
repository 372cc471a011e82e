package opstest

import (
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// Fleet also holds the vids, as lists of vehicles need them.
type Fleet struct {
	*fleet.Table
	Changes *ops.Changes // may be nil
}

func NewFleet() Fleet {
	t := fleet.New()
	t.KeepNames(1 << 20)
	return Fleet{Table: t}
}

func (f Fleet) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	is := fleet.Answer{Driving: d, Throttle: t}
	was := f.Table.Put(id, is)
	if f.Changes != nil {
		f.Changes.Put(id, was, is)
	}
}
