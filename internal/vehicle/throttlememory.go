package vehicle

// ThrottleMemory is what the throttle rules remember of one car between two samples. It holds no
// past samples, so its size is fixed. Positions are in percent, durations in seconds.
type ThrottleMemory struct {
	// Last is the newest time for which the rules have run.
	Last    UnixMilli
	Sensors [NumThrottleSensors]SensorMemory
	Pairs   [NumThrottlePairs]PairMemory
	Follow  FollowMemory
	Alarm   AlarmMemory
	// Lags[i][0] is the lag of sensor x of pair i: the delay with which it follows sensor y.
	// Lags[i][1] is the lag of sensor y. Ages has an entry for each sensor. If the sensor's newest
	// value only repeats an old reading, the entry is the time between that reading and the newest
	// value, in hundredths of a second; otherwise it is zero. (New fields must be added at the end,
	// so that stored memories keep their meaning.)
	Lags [NumThrottlePairs][2]LagMemory
	Ages [NumThrottleSensors]uint16
	// CodeSeen is when the newest list with a throttle code was read, or later if CodeGone could
	// not hold the time since then. CodeGap is the longest time, in seconds, between two such lists
	// of one drive. CodeGone is the time, in seconds, from CodeSeen until the first list without a
	// throttle code when such a code was due again. It is zero if there was none, or if
	// State.FaultCode is zero.
	CodeSeen          UnixMilli
	CodeGap, CodeGone uint16
	// Driven is how long, in hundredths of a second, the car has driven with plate sensor A between
	// the ends of its range, up to drivenKnown.
	Driven uint16
}

// ThrottleSensor numbers the signals that the throttle rules compare.
type ThrottleSensor uint8

// The sensors: two of the throttle plate, the commanded position of the plate, two of the pedal,
// and engine load. Load is not part of the throttle system. It is compared with the plate if only
// one sensor reports the plate's position.
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

// SensorMemory is what is remembered of the recent readings of one sensor.
type SensorMemory struct {
	// Of the recent readings, only the extremes of two consecutive periods are stored. Start, Lo
	// and Hi are the beginning and the extremes of the present period. PrevStart, PrevLo and PrevHi
	// are those of the previous period.
	Start, PrevStart       UnixMilli
	Lo, Hi, PrevLo, PrevHi float32
	// Gap is the time between the last two readings, in seconds. It is zero if there is only one
	// reading, or if they are more than 2.5 s (bracketWithin) apart. Step is the absolute
	// difference of their values, in percent.
	Gap, Step float32
	// Travel is the distance, in percent, that the sensor moved back and forth recently: a sum of
	// the steps that reverse its direction, each at most travelMost, that decays with the time
	// constant travelDecay.
	Travel float32
	// AtLimit is how long, in seconds, the sensor has been at an end of its electrical range
	// although another reading contradicts it.
	AtLimit float32
	// RestFor is how long, in hundredths of a second, the sensor was seen while the car was
	// stationary, up to restKnown. Rest is the lowest reading in that time, and Top the highest
	// reading ever, both in whole percent.
	RestFor   uint16
	Rest, Top uint8
	// Marks is a set of markFalling (the newest movement was downwards), markOpen and markZero (the
	// sensor was seen at 100 %, or at 0, before the car had driven long enough without that, so it may
	// be there when healthy).
	Marks uint8
}

// PairMemory is what is known of two sensors that should agree.
type PairMemory struct {
	// Last is when the two sensors were last compared.
	Last UnixMilli
	// Weight, MeanX, MeanY, Sxx and Sxy are the weighted moments of the readings x and y from which
	// the line y(x) of this car is computed. Weight is in seconds; Sxx is Σ w·(x-MeanX)², Sxy is Σ
	// w·(x-MeanX)·(y-MeanY).
	Weight, MeanX, MeanY, Sxx, Sxy float32
	// Disagreement is the evidence that the sensors disagree, in percent × seconds. It is a
	// one-sided cumulative sum (CUSUM) of the distance between their readings; the comment of
	// compare has the formula.
	Disagreement float32
	// Stuck[0] and Noise[0] watch sensor x of the pair, Stuck[1] and Noise[1] sensor y.
	Stuck [2]StuckMemory
	Noise [2]NoiseMemory
}

// StuckMemory watches one sensor of a pair for being stuck while the other moves.
type StuckMemory struct {
	// Since is the time from which the sensor has had the value At without moving.
	Since UnixMilli
	At    float32
	// Low and High are positions of the other sensor since this sensor has had the value At: the
	// other sensor was once at or below Low, and once at or above High. Each observation gives only
	// a range in which the other sensor was. Low is the lowest upper bound of these ranges, and
	// High the highest lower bound.
	Low, High float32
	// PrevLow and PrevHigh are the bounds of the other sensor's range at the previous observation.
	PrevLow, PrevHigh float32
	// For is how long, in seconds, this sensor has been stuck. It is stuck if it remains at the
	// value At although the other sensor has moved so far, from Low to High or back, that a healthy
	// sensor would have moved too. The time before High - Low became so large is not counted.
	For float32
}

// NoiseMemory sums up the movements of one sensor of a pair that no movement of the other explains.
type NoiseMemory struct {
	Level float32 // decays with noiseDecay
	Moved float32 // movement since the other sensor was last observed
	Wide  float32 // range of the other sensor at that time
}

// FollowMemory is what is known of whether this car's plate follows the demand: the position of the
// pedal, or engine load if the car reports no pedal.
type FollowMemory struct {
	// Last is when demand and plate were last compared.
	Last UnixMilli
	// Low is the demand from which a rise is measured, in percent. PlateLo and PlateHi are the
	// lowest and highest position of the plate, in percent, since the demand was Low. For is how
	// long, in seconds, the demand has been above Low by at least the rise that should move the
	// plate.
	Low, PlateLo, PlateHi, For float32
	// Floor is the lowest demand seen, in percent. Rest is the highest position of the plate, in
	// percent, while the demand was near Floor. RestFor is how long, in seconds and in total, the
	// demand was near Floor; it is counted up to restsFor. While Rest is open, RestFor is negative: how
	// much longer the plate must rest closed.
	Floor, Rest, RestFor float32
	// Followed counts the rises of the demand that moved the plate, and Ignored those that did not.
	// Once the plate is known to follow, a rise that does not move it is counted in Missed instead.
	// A rise that moves the plate sets Missed to zero.
	Followed, Ignored uint16
	Missed            uint8
	// Demand is the sensor whose rises are watched: a pedal sensor, or engine load. Before one of
	// them was read, it is zero (PlateA).
	Demand ThrottleSensor
}

// AlarmMemory is the present anomaly that a throttle rule found. If there is none, all its fields but
// Returns are zero.
type AlarmMemory struct {
	Since UnixMilli
	// Seen is when the rule last measured at least half of the value that raises the alarm. Looked
	// is when the rule last had readings of the sensors X and Y.
	Seen, Looked UnixMilli
	// Calm is the length of time, in seconds, that the rule's readings after Seen cover. All these
	// readings measured less than half of the value that raises the alarm. After calmFor
	// of them, the alarm ends; calmNeeded has the exact rule.
	Calm float32
	// ValueX and ValueY are the readings when the alarm was raised. Expected is what Y should have
	// read at that time (0 if unknown). Measure is what the rule measured at that time.
	ValueX, ValueY, Expected, Measure float32
	Rule                              ThrottleRule
	// X and Y are the sensors concerned; both are the same if there is only one.
	X, Y ThrottleSensor
	// Returns is how many anomalies have ended before, counted up to mostReturns. It outlasts the
	// anomaly.
	Returns uint8
}
