package fleet

import (
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

type Answer struct {
	Driving  vehicle.DrivingVerdict
	Throttle vehicle.ThrottleVerdict
}

// value has the time of the driving verdict, with the states of both verdicts in the low bits, and
// the time of the throttle verdict.
type value [2]uint64

const (
	stateBits     = 4
	drivingMask   = 3
	notDrivingBit = 1 << 2
	throttleBit   = 1 << 3

	lastTime = 1<<(63-stateBits) - 1 // 18 million years
)

func pack(a Answer) value {
	t := min(max(a.Driving.Time, -lastTime), lastTime)
	v := value{uint64(t) << stateBits, uint64(a.Throttle.Time)}
	v[0] |= uint64(a.Driving.State) & drivingMask
	if a.Driving.NotDriving {
		v[0] |= notDrivingBit
	}
	if a.Throttle.System == throttle.Normal {
		v[0] |= throttleBit
	}
	return v
}

func (v value) unpack() (a Answer) {
	a.Driving.Time = signal.UnixMilli(int64(v[0]) >> stateBits)
	a.Driving.State = driving.State(v[0] & drivingMask)
	a.Driving.NotDriving = v[0]&notDrivingBit != 0
	if v[0]&throttleBit != 0 {
		a.Throttle.System = throttle.Normal
	}
	a.Throttle.Time = signal.UnixMilli(v[1])
	return a
}
