package vehicle

// ThrottleMemory is what the throttle rules remember of one car. Positions are in percent,
// durations in seconds.
type ThrottleMemory struct {
	// Last is the newest time for which the rules have run.
	Last    UnixMilli
	Sensors [NumThrottleSensors]SensorMemory
	Pairs   [NumThrottlePairs]PairMemory
	Follow  FollowMemory
	Alarm   AlarmMemory
	// Lags[i] has the lags of the sensors x and y of pair i. Ages has the time, in hundredths of a
	// second, between a sensor's reading and its newest value, if that only repeats it. (New fields
	// go to the end, so that stored memories keep their meaning.)
	Lags [NumThrottlePairs][2]LagMemory
	Ages [NumThrottleSensors]uint16
	// CodeSeen is when the newest list with a throttle code was read, or later if CodeGone could
	// not hold the time since. CodeGap is the longest time in seconds between two such lists of one
	// drive. CodeGone is the time in seconds from CodeSeen to the first list without a code when
	// one was due again, or zero.
	CodeSeen          UnixMilli
	CodeGap, CodeGone uint16
	// Driven is how long, in hundredths of a second up to drivenKnown, the car has driven with
	// plate sensor A between the ends of its range.
	Driven uint16
}

type ThrottleSensor uint8

// Load is not part of the throttle system. It is compared with the plate if only one sensor reports
// that.
const (
	PlateA ThrottleSensor = iota
	PlateB
	Command
	PedalD
	PedalE
	Load
	NumThrottleSensors = iota
)

var throttleSensors = [NumThrottleSensors]Signal{
	PlateA:  ThrottlePosition,
	PlateB:  ThrottlePositionB,
	Command: ThrottleActuator,
	PedalD:  AcceleratorPositionD,
	PedalE:  AcceleratorPositionE,
	Load:    EngineLoad,
}

type SensorMemory struct {
	// Of the recent readings, only the beginning and extremes of the present period and of the
	// previous one are stored.
	Start, PrevStart       UnixMilli
	Lo, Hi, PrevLo, PrevHi float32
	// Gap is the time in seconds between the last two readings, zero if more than bracketWithin.
	// Step is the distance between them, in percent.
	Gap, Step float32
	// Travel is a decaying sum of steps (see travelMost).
	Travel float32
	// AtLimit is how long, in seconds, the sensor has been at an end of its range although another
	// reading contradicts it.
	AtLimit float32
	// RestFor is how long, in hundredths of a second up to restKnown, the sensor was seen at a
	// standstill. Rest is the lowest reading then, and Top the highest ever, in whole percent.
	RestFor   uint16
	Rest, Top uint8
	// Marks is a set of markFalling (the newest movement was downwards), markOpen and markZero (the
	// sensor was at 100 %, or at 0, before the car had driven long enough without that, so a
	// healthy one may be there).
	Marks uint8
}

type PairMemory struct {
	// Last is when the two sensors were last compared.
	Last UnixMilli
	// Weighted moments of x and y, from which the line y(x) of this car is computed. Weight is in
	// seconds; Sxx is Σ w·(x-MeanX)², Sxy is Σ w·(x-MeanX)·(y-MeanY).
	Weight, MeanX, MeanY, Sxx, Sxy float32
	// Disagreement is in percent × seconds; see compare.
	Disagreement float32
	// [0] watches sensor x of the pair, [1] sensor y.
	Stuck [2]StuckMemory
	Noise [2]NoiseMemory
}

// StuckMemory watches one sensor of a pair for being stuck while the other moves.
type StuckMemory struct {
	// Since is the time from which the sensor has had the value At.
	Since UnixMilli
	At    float32
	// The other sensor has since been at or below Low once, and at or above High once. Each
	// observation gives a range; Low is the lowest upper bound, and High the highest lower bound.
	Low, High float32
	// The range at the previous observation.
	PrevLow, PrevHigh float32
	// For is how long, in seconds, the sensor has stayed since High - Low became so large that it
	// should have moved.
	For float32
}

// NoiseMemory sums up movements that no movement of the other sensor explains.
type NoiseMemory struct {
	Level float32 // decays with noiseDecay
	Moved float32 // movement since the other sensor was last observed
	Wide  float32 // range of the other sensor at that time
}

// FollowMemory is what is known of whether the plate follows the demand: the pedal, or engine load
// without a pedal.
type FollowMemory struct {
	// Last is when demand and plate were last compared.
	Last UnixMilli
	// Low is the demand from which a rise is measured, PlateLo and PlateHi the extremes of the
	// plate since, and For the seconds for which the demand has been high enough above Low.
	Low, PlateLo, PlateHi, For float32
	// Floor is the lowest demand seen, and Rest the highest position of the plate near it. RestFor
	// is for how many seconds the demand was near Floor, up to restsFor; negative while Rest is
	// open: how much longer the plate must rest closed.
	Floor, Rest, RestFor float32
	// Rises of the demand that moved the plate, and that did not. Once the plate is known to
	// follow, the latter are counted in Missed, until one moves it.
	Followed, Ignored uint16
	Missed            uint8
	// Demand is the sensor whose rises are watched; PlateA before one was read.
	Demand ThrottleSensor
}

// AlarmMemory is the present anomaly of a rule. If there is none, all fields but Returns are zero.
type AlarmMemory struct {
	Since UnixMilli
	// Seen is when the rule last measured at least half of its alarm, and Looked when it last had
	// readings of X and Y.
	Seen, Looked UnixMilli
	// Calm is the length of time, in seconds, that the readings after Seen cover (see calmNeeded).
	Calm float32
	// The readings and the measure when the alarm was raised, and what Y should have read then (0
	// if unknown).
	ValueX, ValueY, Expected, Measure float32
	Rule                              ThrottleRule
	// the same if there is only one
	X, Y ThrottleSensor
	// Returns is how many anomalies have ended before, up to mostReturns.
	Returns uint8
}
