package traffic

import (
	"time"

	"example.org/carstate/internal/vehicle"
)

type car struct {
	motion
	sensors
	receiver
	place
	road   *road         // that the car is on, or drives to through side streets; nil: none
	left   point         // where the car left its last road
	there  time.Duration // when the car arrives at the next road
	parks  bool          // when it has stopped
	until  time.Duration
	due    time.Duration // time of the next report
	truth  vehicle.DrivingState
	share  float64       // speed of the cars around, as a share of that in light traffic
	change time.Duration // when truth changed
}

type place uint8

const (
	onRoad place = iota
	sideStreet
	parked
)

// Step is the time by which [Fleet.Step] advances.
const Step = 200 * time.Millisecond

const stepSeconds = float64(Step) / float64(time.Second)
