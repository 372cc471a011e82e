package vehicle

// ThrottleMemory is the memory of the throttle rules between two samples. Its size is
// fixed; it holds no window of samples. Positions are in percent, durations in seconds.
type ThrottleMemory struct {
	// Last is the newest time for which the rules have run.
	Last    UnixMilli
	Sensors [NumThrottleSensors]SensorMemory
	Pairs   [NumThrottlePairs]PairMemory
	Follow  FollowMemory
	Alarm   AlarmMemory
	// Lags[i][0] is the lag of sensor x of pair i, and Lags[i][1] that of sensor y. Ages is, for
	// each sensor, the time from its newest true reading to the latest repetition of that reading,
	// in hundredths of a second. (New fields must be added at the end, so that stored memories keep
	// their meaning.)
	Lags [NumThrottlePairs][2]LagMemory
	Ages [NumThrottleSensors]uint16
	// CodeGone is the time of the first list without a throttle code after the last list that held
	// the state's FaultCode. It is zero if the newest list holds a throttle code.
	CodeGone UnixMilli
}

// ThrottleSensor numbers the signals that the throttle rules compare.
type ThrottleSensor uint8

// The sensors. Engine load is not part of the throttle system. A throttle plate with only one
// sensor is compared with it, if there is nothing better to compare with.
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
	// The recent readings are kept as the ranges of two consecutive periods. Start, Lo and Hi are
	// the beginning and the extremes of the present period. PrevStart, PrevLo and PrevHi are those
	// of the period before it.
	Start, PrevStart       UnixMilli
	Lo, Hi, PrevLo, PrevHi float32
	// Gap is the time between the last two readings, in seconds. It is zero if there is only one,
	// or if more than bracketWithin lies between them. Step is the difference of their values.
	Gap, Step float32
	// Travel is the distance that the sensor moved recently, up and down. It is a sum of steps,
	// each at most travelMost, that decays with the time constant travelDecay.
	Travel float32
	// AtLimit is how long the sensor has been at an end of its electrical range. OffLimits
	// is how long it has been seen elsewhere.
	AtLimit, OffLimits float32
	// RestingEnds says at which ends of its range this car's sensor was seen before it had been
	// seen elsewhere for long enough: bit 0 is the low end, bit 1 the high one. The sensor may
	// rest at such an end.
	RestingEnds uint8
}

// PairMemory is what is known of two sensors that should agree.
type PairMemory struct {
	// Last is when the two sensors were last compared.
	Last UnixMilli
	// Weight, MeanX, MeanY, Sxx and Sxy are the weighted moments of the line y(x) as
	// learned on this car. Weight is in seconds; Sxx is Σ w·(x-MeanX)², Sxy is Σ
	// w·(x-MeanX)·(y-MeanY).
	Weight, MeanX, MeanY, Sxx, Sxy float32
	// Disagreement says how strongly the readings indicate that the sensors disagree, in percent ×
	// seconds: a one-sided CUSUM of their distance (see compare).
	Disagreement float32
	// Stuck[0] and Noise[0] watch sensor x of the pair, Stuck[1] and Noise[1] sensor y. Stuck
	// finds a sensor that is stuck while the other moves. Noise finds a sensor that moves while
	// the other does not.
	Stuck [2]StuckMemory
	Noise [2]NoiseMemory
}

// StuckMemory watches one sensor of a pair for being stuck while the other moves.
type StuckMemory struct {
	// Since is when the sensor reached At, from which it has not moved.
	Since UnixMilli
	At    float32
	// Low is the minimum, since that time, of the upper bounds of the other sensor's range, and
	// High is the maximum of its lower bounds. So the other sensor was surely once at or below Low,
	// and once at or above High.
	Low, High float32
	// PrevLow and PrevHigh are the other sensor's bounds when they were last observed.
	PrevLow, PrevHigh float32
	// For is how long, in seconds, the difference of High and Low has been too large for a healthy
	// sensor to stay at At.
	For float32
}

// NoiseMemory adds up what one sensor of a pair moved beyond the movement of the other.
type NoiseMemory struct {
	Level float32 // decays with noiseDecay
	Moved float32 // movement since the other sensor was last observed
	Wide  float32 // range of the other sensor at that time
}

// FollowMemory is what is known of whether this car's plate follows the demand.
type FollowMemory struct {
	// Last is when demand and plate were last compared.
	Last UnixMilli
	// Low is the demand from which a rise is measured. PlateLo and PlateHi are the plate's
	// range since the demand was Low. For is how long the demand has been up.
	Low, PlateLo, PlateHi, For float32
	// Floor is the lowest demand seen. Rest is the highest position of the plate while the demand
	// was at that floor. RestFor is how long the plate was seen with the demand there.
	Floor, Rest, RestFor float32
	// Followed and Ignored count the rises of the demand that moved the plate and those
	// that did not. Missed counts the rises in a row that did not move a plate that is
	// known to follow.
	Followed, Ignored uint16
	Missed            uint8
	// Demand is the sensor whose rises are watched: a pedal sensor, or engine load. It is
	// zero while none was read.
	Demand ThrottleSensor
}

// AlarmMemory is the present anomaly; the zero value if there is none.
type AlarmMemory struct {
	Since UnixMilli
	// Seen is when the rule last measured at least half of the value that raises the alarm. Looked
	// is when the rule last had readings.
	Seen, Looked UnixMilli
	// Calm is how long, in seconds, the rule has had readings and has measured less than that half.
	Calm float32
	// ValueX and ValueY are the readings when the alarm was raised. Expected is what Y should have
	// read then (0 if unknown). Measure is what the rule measured then.
	ValueX, ValueY, Expected, Measure float32
	Rule                              ThrottleRule
	// X and Y are the sensors concerned; both are the same if there is only one.
	X, Y ThrottleSensor
	// Drives is the number of drives that ended with this anomaly.
	Drives uint8
}
