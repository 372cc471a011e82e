// Package throttle holds the rules that conclude whether the throttle of a car is healthy, and what
// they remember of it.
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

type Car struct {
	*Memory
	*signal.Latest
	IgnitionOff bool
}

// Memory is in percent and seconds, unless its comments say hundredths of a second.
type Memory struct {
	FaultCode signal.TroubleCode // a throttle code, until lists have lacked one for codeGoneFor
	Last      signal.UnixMilli   // the newest time for which the rules have run
	Sensors   [NumSensors]SensorMemory
	Pairs     [NumPairs]PairMemory
	Follow    FollowMemory
	Alarm     AlarmMemory
	Lags      [NumPairs][2]LagMemory // of x and y
	Ages      [NumSensors]uint16     // hundredths since the reading that the newest value repeats
	CodeSeen  signal.UnixMilli       // when a list last had a throttle code; set later if CodeGone cannot hold the time since
	CodeGap   uint16                 // the longest time between two lists with a code in one drive
	CodeGone  uint16                 // time from CodeSeen to the first list without a code when one was due; 0: none
	Driven    uint16                 // hundredths driven with plate A not at an end, up to drivenKnown
}

type Sensor uint8

// Load replaces a missing second plate sensor or a missing pedal.
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
	Start, PrevStart       signal.UnixMilli // beginning of the present and the previous period (bucketMillis)
	Lo, Hi, PrevLo, PrevHi float32
	Gap, Step              float32 // time and change since the reading before; Gap is 0 above bracketWithin
	Travel                 float32 // sum of steps; see travelMost
	AtLimit                float32 // seconds at an end of the range although another sensor contradicts it
	RestFor                uint16  // hundredths at a standstill, up to restKnown
	Rest, Top              uint8   // the lowest reading at a standstill, and the highest ever
	// Marks has markFalling if the newest movement was downwards; markOpen or markZero if plate A
	// was at 100 % or 0 before it was elsewhere for drivenKnown of driving, so a healthy one may
	// be.
	Marks uint8
}

// PairMemory has the moments of the line y(x): Sxx is Σ w·(x-MeanX)², Sxy is Σ
// w·(x-MeanX)·(y-MeanY).
type PairMemory struct {
	Last                           signal.UnixMilli // when the sensors were last compared
	Weight, MeanX, MeanY, Sxx, Sxy float32
	Disagreement                   float32        // in percent × seconds; see compare
	Stuck                          [2]StuckMemory // of x and of y
	Noise                          [2]NoiseMemory
}

// While this sensor stays at At, each comparison gives a range of the other. Low is the lowest
// upper bound of these ranges, High the highest lower bound: so the other moved by High - Low or
// more.
type StuckMemory struct {
	Since             signal.UnixMilli // when the sensor reached At
	At, Low, High     float32
	PrevLow, PrevHigh float32 // the other's range before
	For               float32 // how long it has stayed although High - Low shows that it should have moved
}

type NoiseMemory struct {
	Level float32 // what the other sensor does not explain; decays with noiseDecay
	Moved float32 // movement since the other sensor was last observed
	Wide  float32 // range of the other sensor then
}

// FollowMemory shows if the plate follows the demand: the pedal, or else engine load. Since the
// demand rose from Low, the plate was in PlateLo to PlateHi, and the demand high for For.
type FollowMemory struct {
	Last                       signal.UnixMilli
	Low, PlateLo, PlateHi, For float32
	Floor, Rest                float32 // the lowest demand, and the plate's highest position near that
	RestFor                    float32 // time that the plate rested closed, up to restsFor; negative: that it still must
	Followed, Ignored          uint16  // rises that moved the plate; and that did not, before it was known to follow
	Missed                     uint8   // rises in a row that did not move it since then
	Demand                     Sensor  // PlateA: none was read yet
}

// AlarmMemory has only Returns set if there is no anomaly.
type AlarmMemory struct {
	Since             signal.UnixMilli
	Seen, Looked      signal.UnixMilli // when the rule last measured half of its alarm, and when it last ran
	Calm              float32          // seconds of readings after Seen
	ValueX, ValueY    float32          // when the alarm was raised, like Expected and Measure
	Expected, Measure float32          // Expected is 0 if unknown.
	Rule              Rule
	X, Y              Sensor // the same if there is only one
	Returns           uint8  // how many anomalies have ended before, up to mostReturns
}
