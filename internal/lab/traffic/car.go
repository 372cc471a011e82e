package traffic

import (
	"time"

	"example.org/carstate/internal/driving"
)

type car struct {
	motion
	sensors
	receiver
	place
	road   *road         // that the car is on, or drives to; nil: none
	left   point         // where it left a road
	there  time.Duration // arrival at the next road
	parks  bool          // when it has stopped
	until  time.Duration
	due    time.Duration // next report
	truth  driving.State
	share  float64       // of the speed in light traffic, by the cars around
	change time.Duration // when truth changed
}

type place uint8

const (
	onRoad place = iota
	sideStreet
	parked
)

const Step = 200 * time.Millisecond

const stepSeconds = float64(Step) / float64(time.Second)
