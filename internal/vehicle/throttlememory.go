package vehicle

// ThrottleMemory is what the throttle rules carry from one sample to the next.
// Its size is fixed; it holds no window of samples. Positions are in percent,
// durations in seconds.
type ThrottleMemory struct {
	// Last is the newest time that has been judged.
	Last    UnixMilli
	Sensors [NumThrottleSensors]SensorMemory
	Pairs   [NumThrottlePairs]PairMemory
	Follow  FollowMemory
	Alarm   AlarmMemory
	// Lags are how the sensors of each pair follow each other, x then y. Ages are how
	// much older than its latest reading that one is which said something, in
	// hundredths of a second. (New fields go to the end: stored memories then still
	// say what they said.)
	Lags [NumThrottlePairs][2]LagMemory
	Ages [NumThrottleSensors]uint16
	// CodeGone is the time of the first list without a throttle code since one held
	// the state's FaultCode; zero if the newest list holds one.
	CodeGone UnixMilli
}

// ThrottleSensor numbers the signals that the throttle rules compare.
type ThrottleSensor uint8

// The sensors. Engine load is no part of the throttle system: a plate's only
// sensor is held against it where there is no better witness.
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

var throttleSignals = func() (mask uint32) {
	for _, g := range throttleSensors {
		mask |= 1 << g
	}
	return mask
}()

// SensorMemory is the recent past of one sensor.
type SensorMemory struct {
	// Start is when the latest readings began, PrevStart when those before them
	// did; Lo, Hi, PrevLo and PrevHi are their extremes.
	Start, PrevStart       UnixMilli
	Lo, Hi, PrevLo, PrevHi float32
	// Gap is the time between the last two readings; zero if the last has none
	// close before it. Step is how far apart they were.
	Gap, Step float32
	// Travel is how far the sensor moved, up and down, of late.
	Travel float32
	// AtLimit is how long it has been at an end of its electrical range,
	// OffLimits how long it has been seen elsewhere.
	AtLimit, OffLimits float32
	// Rests says at which ends this car's sensor was seen before it was known
	// not to rest there: bit 0 the low one, bit 1 the high one.
	Rests uint8
}

// PairMemory is what is known of two sensors that should agree.
type PairMemory struct {
	// Last is when they were last compared.
	Last UnixMilli
	// Weight, MeanX, MeanY, Sxx and Sxy are the moments of y(x) as learned on
	// this car, weighted in seconds.
	Weight, MeanX, MeanY, Sxx, Sxy float32
	// Apart is the evidence that they disagree, in percent × seconds.
	Apart float32
	// Still and Rough watch x, then y, for standing still and for moving while
	// the other does not.
	Still [2]StillMemory
	Rough [2]RoughMemory
}

// StillMemory watches one sensor of a pair for not moving while the other does.
type StillMemory struct {
	// Since is when the sensor came to At, which it has not left.
	Since UnixMilli
	At    float32
	// Low is the least that the other's upper bound has been since, High the
	// most that its lower bound has: it was surely as low as the one and as high
	// as the other.
	Low, High float32
	// WasLo and WasHi are the other's bounds when last looked at.
	WasLo, WasHi float32
	// For is how long these have been too far apart.
	For float32
}

// RoughMemory adds up what one sensor of a pair moved more than the other.
type RoughMemory struct {
	Level float32 // fading
	Moved float32 // by the one, since the other was last looked at
	Wide  float32 // the other's range when last looked at
}

// FollowMemory knows whether this car's plate follows what is asked of it.
type FollowMemory struct {
	// Last is when demand and plate were last looked at.
	Last UnixMilli
	// Low is the demand from which a rise counts, PlateLo and PlateHi the
	// plate's range since the demand was there, For how long it has been up.
	Low, PlateLo, PlateHi, For float32
	// Floor is the lowest demand seen, Rest the highest position in which the
	// plate stayed while the demand was there, seen for RestFor.
	Floor, Rest, RestFor float32
	// Followed and Ignored count the rises that moved the plate and those that
	// did not, Missed those in a row of late that a plate which follows did not.
	Followed, Ignored uint16
	Missed            uint8
	// Demand is what asks: a pedal sensor, or engine load. Zero: none yet.
	Demand ThrottleSensor
}

// AlarmMemory is the anomaly that stands, the zero value if there is none.
type AlarmMemory struct {
	Since UnixMilli
	// Seen is when its evidence was last present, Looked when its rule last had
	// readings to look at.
	Seen, Looked UnixMilli
	// Calm is how long the rule has looked without finding evidence.
	Calm float32
	// ValueX and ValueY are the readings when it was raised, Expected is what Y
	// should then have read (0: not known), Measure what the rule measured.
	ValueX, ValueY, Expected, Measure float32
	Rule                              ThrottleRule
	// X and Y are the sensors concerned; the same one twice if it is alone.
	X, Y ThrottleSensor
	// Drives counts the drives that ended with it.
	Drives uint8
}
