// Package throttle holds the rules that conclude whether the throttle of a car is healthy, and what
// they remember of it.
//
// The package has no clock and no I/O, and must never know about bytes, topics, headers or storage.
package throttle

import "example.org/carstate/internal/signal"

type System uint8

const (
	Anomaly System = 0
	Normal  System = 1
)

func (t System) String() string {
	if t == Normal {
		return "normal"
	}
	return "anomaly"
}

// Car is what the rules see of a car.
type Car struct {
	*Memory
	*signal.Latest
	IgnitionOff bool
}

// PlateTime has every sensor of the plate and its command.
func (c Car) PlateTime() (newest signal.UnixMilli) {
	for _, g := range [...]signal.Signal{signal.ThrottlePosition, signal.ThrottlePositionB,
		signal.RelativeThrottlePosition, signal.ThrottleActuator} {
		newest = max(newest, c.Latest[g].Time)
	}
	return newest
}
