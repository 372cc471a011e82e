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

// Memory is in percent and seconds.
type Memory struct {
	// FaultCode is a throttle code until the lists have been without one for long enough.
	FaultCode signal.TroubleCode
	Last      signal.UnixMilli // the newest time for which the rules have run
	Sensors   [NumSensors]SensorMemory
	Pairs     [NumPairs]PairMemory
	Follow    FollowMemory
	Alarm     AlarmMemory
	// Lags are of x and y of each pair. Ages are the hundredths of a second since the reading that
	// a sensor's newest value repeats.
	Lags [NumPairs][2]LagMemory
	Ages [NumSensors]uint16
	// CodeSeen is when a list had a throttle code, or later if CodeGone could not hold the time
	// since. CodeGap is the longest time in seconds between two such lists of one drive, and
	// CodeGone that to the first list without a code when one was due.
	CodeSeen          signal.UnixMilli
	CodeGap, CodeGone uint16
	// hundredths of a second of driving with plate A between the ends of its range, up to
	// drivenKnown
	Driven uint16
}

type Sensor uint8

// Load is compared with the plate if only one sensor reports that.
const (
	PlateA Sensor = iota
	PlateB
	Command
	PedalD
	PedalE
	Load
	NumSensors = iota
)

var signals = [NumSensors]signal.Signal{
	PlateA:  signal.ThrottlePosition,
	PlateB:  signal.ThrottlePositionB,
	Command: signal.ThrottleActuator,
	PedalD:  signal.AcceleratorPositionD,
	PedalE:  signal.AcceleratorPositionE,
	Load:    signal.EngineLoad,
}

type SensorMemory struct {
	Start, PrevStart       signal.UnixMilli // extremes of the present period and of the previous one
	Lo, Hi, PrevLo, PrevHi float32
	// Gap is the seconds between the last two readings, zero if more than bracketWithin; Step is
	// the distance.
	Gap, Step float32
	Travel    float32 // see travelMost
	// for how many seconds the sensor was at an end of its range although another contradicts it
	AtLimit float32
	// RestFor is in hundredths of a second at a standstill, up to restKnown; Rest is the lowest
	// reading then, and Top the highest ever.
	RestFor   uint16
	Rest, Top uint8
	// Marks are markFalling (the newest movement was downwards), and markOpen and markZero: the
	// sensor was at 100 %, or 0, before the car had driven long enough without, so a healthy one
	// may be.
	Marks uint8
}

type PairMemory struct {
	Last signal.UnixMilli // when the sensors were last compared
	// moments of the line y(x): Weight is in seconds, Sxx is Σ w·(x-MeanX)², Sxy is Σ
	// w·(x-MeanX)·(y-MeanY)
	Weight, MeanX, MeanY, Sxx, Sxy float32
	Disagreement                   float32        // in percent × seconds; see compare
	Stuck                          [2]StuckMemory // of x and of y
	Noise                          [2]NoiseMemory
}

type StuckMemory struct {
	Since signal.UnixMilli // since when the sensor has had the value At
	At    float32
	// The other sensor was at or below Low once since, and at or above High once: the lowest upper
	// bound and the highest lower bound of its ranges.
	Low, High         float32
	PrevLow, PrevHigh float32 // of the range before
	// for how many seconds it has stayed although High - Low shows that it should have moved
	For float32
}

type NoiseMemory struct {
	Level float32 // decays with noiseDecay
	Moved float32 // movement since the other sensor was last observed
	Wide  float32 // range of the other sensor at that time
}

// FollowMemory is of the demand: the pedal, or engine load without a pedal.
type FollowMemory struct {
	Last signal.UnixMilli
	// A rise is measured from Low; the plate has been between PlateLo and PlateHi since, and the
	// demand high enough for For seconds.
	Low, PlateLo, PlateHi, For float32
	// Floor is the lowest demand, and Rest the highest position of the plate near it. RestFor is
	// for how many seconds, up to restsFor; negative: for how many the plate must still rest
	// closed.
	Floor, Rest, RestFor float32
	// rises that moved the plate, and that did not; once it is known to follow, these are in Missed
	Followed, Ignored uint16
	Missed            uint8
	// PlateA before one was read
	Demand Sensor
}

// AlarmMemory has Returns alone if there is no anomaly.
type AlarmMemory struct {
	Since signal.UnixMilli
	// Seen is when the rule last measured at least half of its alarm, and Looked when it could.
	Seen, Looked                      signal.UnixMilli
	Calm                              float32 // seconds of readings after Seen
	ValueX, ValueY, Expected, Measure float32 // when the alarm was raised; Expected is 0 if unknown
	Rule                              Rule
	X, Y                              Sensor // the same if there is only one
	// how many anomalies have ended before, up to mostReturns
	Returns uint8
}
