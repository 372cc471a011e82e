package vehicle

import "time"

// ThrottleRule is a reason to call a throttle system anomalous.
type ThrottleRule uint8

// The rules. Their numbers are stored in states, so new rules must be added at the end.
const (
	NoThrottleRule ThrottleRule = iota
	RuleTroubleCode
	RuleRedundantSensors
	RulePlateCommand
	RulePlatePedal
	RuleStuckSensor
	RuleElectricalLimit
	RuleNoise
	numThrottleRules = iota
)

// throttleRules gives each rule its name, version and text. The version of a rule increases with
// every change of what the rule finds. The comment of a rule is its source: the check in the car's
// own engine computer that finds the same fault. The check is named by the SAE J2012 trouble codes
// that it sets. The engine computer checks raw voltages every few milliseconds. The rules here
// receive readings that are seconds apart, so they wait longer before they raise an alarm.
var throttleRules = [numThrottleRules]struct {
	name    string
	version int
	text    string
}{
	NoThrottleRule:  {"throttle/none", 1, "normal: every measure is within its limit"},
	RuleTroubleCode: {"throttle/trouble-code", 4, "the car reports a trouble code of its throttle or pedal"},
	// Voltage correlation: P2135 (throttle A/B), P2138 (pedal D/E).
	RuleRedundantSensors: {"throttle/redundant-sensors", 3,
		"two sensors of one position no longer agree as they did on this car"},
	// Throttle actuator range/performance and stuck plate: P2101, P0638, P2111, P2112.
	RulePlateCommand: {"throttle/plate-command", 4, "the plate is not where it is commanded to be"},
	// Throttle position rationality: P0121, P0068, P2119.
	RulePlatePedal: {"throttle/plate-pedal", 5, "the plate no longer moves when it is asked to, as it did on this car"},
	// Sensor range/performance: P0121, P0221, P2121, P2126.
	RuleStuckSensor: {"throttle/stuck-sensor", 3, "a sensor is stuck while its partner moves"},
	// Circuit low and high: P0122, P0123, P0222, P0223, P2122, P2123, P2127, P2128.
	RuleElectricalLimit: {"throttle/electrical-limit", 4,
		"a sensor is at the end of its electrical range, where this car's cannot be"},
	// Circuit intermittent: P0124, P0224, P2124, P2129.
	RuleNoise: {"throttle/noise", 3, "a sensor moves where no plate or pedal does"},
}

// String returns the rule's name.
func (r ThrottleRule) String() string { return throttleRules[min(r, numThrottleRules-1)].name }

// Thresholds of the throttle rules. Positions are in percent of the sensor's range, as PIDs $11,
// $47, $49, $4A and $4C of SAE J1979 give them (one byte, so steps of 0.4). Durations are in
// seconds.
//
// The comments give the greatest measure of each rule in 47 hours of healthy driving. No threshold
// was found by search: each is a round number, about twice that greatest measure. A
// cross-validation of this factor divides the healthy drives into parts: once into two halves, once
// by kind of car. For each part, it sets each threshold to 1.8 times the greatest measure in the
// other parts, and counts the drives of this part that would then be anomalous. docs/verdicts.md
// has the results; TestMargins of internal/lab/faults prints them.
const (
	// How to compare readings of two sensors that were not read at the same time.

	// If two readings of a sensor are at most bracketWithin seconds apart, the sensor's position
	// between them is taken to be between the two values. Loggers read a sensor every 0.1 to 2 s,
	// and a foot moves a pedal in less than a second. If the readings are farther apart, only
	// readings of two sensors with the same time stamp are compared. A greater bracketWithin would
	// raise false alarms: in a test with 5 s, in which 94 healthy drives were thinned to one
	// reading in 3 or 4 s, 23 drives had a false anomaly.
	bracketWithin = 2.5
	// bucketMillis is the least length, in milliseconds, of a period over which the lowest and
	// highest reading of a sensor are kept. Sensors are compared by this range and not by single
	// readings, because a logger gives all readings of a row one time stamp, although it did not
	// read the sensors at the same moment.
	bucketMillis = 500
	// most is the maximum time, in seconds, that one comparison or reading adds to a measure,
	// however long ago the previous comparison or reading was. aloneMost is the maximum for a
	// reading with no other reading of its sensor within bracketWithin, because the time stamp of
	// such a reading may be wrong by seconds.
	most, aloneMost = 2.0, 1.0

	// These thresholds distinguish a new reading from a repetition of an old one. When one sensor
	// of a pair has moved by movesBy percent, an unchanged value of the other sensor is taken for a
	// repetition, for a limited time: one and a half times the other sensor's lag, plus lagSpare.
	// The lag is learned from earlier movements. It is the time from a movement of the first sensor
	// until the other sensor had moved by followsBy percent and agreed with the first. Lags are in
	// hundredths of a second; lags below lagLeast or above lagMost are ignored.
	movesBy, followsBy = 2.0, 1.5
	lagLeast, lagMost  = 5, 2500
	lagSpare           = 50

	// How the relation of two sensors is learned.

	// A sensor is settled if its recent readings differ by at most settledWithin percent. The
	// relation of a pair (the value of one sensor that belongs to a value of the other) is learned
	// only while both sensors are settled.
	settledWithin = 2.0
	// matureAfter is how long, in seconds, both sensors of a pair must have been settled (almost
	// stationary) before they are compared. The relation of a pair is learned from readings that
	// disagree by at most the normal difference (sensorsFree or commandFree). Until both sensors
	// have been settled for trustedAfter seconds, it is learned from readings that disagree by up
	// to twice that difference.
	matureAfter, trustedAfter = 12.0, 30.0
	// memory is the greatest total weight, in seconds, of the readings from which the relation of a
	// pair was learned. When a new drive begins, the weight is reduced to at most driveMemory.
	memory, driveMemory = 300.0, 20.0
	// The slope of a pair is how much sensor y moves when sensor x moves by 1 percent. slopePrior
	// is the weight, in percent² × seconds, of the initial assumption that the slope is 1. While
	// nothing else is known, the slope may differ from 1 by slopeDoubt. So a pair with half that
	// slope, or with sensors that move in opposite directions, can be learned too. No real pair has
	// an absolute slope below slopeLeast.
	slopePrior, slopeDoubt, slopeLeast = 50.0, 2.0, 0.3
	// leverage is the maximum, in percent² × seconds, that one comparison adds to the weight of
	// what is known of the slope. Without this limit, one chance agreement far from the usual
	// positions would determine the slope.
	leverage = 60.0
	// A sensor at or above saturated percent, or at or below 100 - saturated, may be at the end of
	// its range. On one car, throttle sensor B stays at 99.2 % while sensor A moves from 67 to
	// 78 %. The end of other sensors is at 4.75 or 4.5 V of 5 V: a sensor from clipsFrom percent on
	// may be at its end where it never read more.
	saturated = 97.0
	clipsFrom = 80

	// These thresholds are for the rules on redundant sensors and on plate and command. The measure
	// of these rules is a sum: each comparison adds the distance between the two sensors, less an
	// allowance, in percent, times the length of time that the comparison covers, in seconds. The
	// allowance is sensorsFree percent for two sensors of one position, and commandFree percent for
	// the plate and its command. A distance above disagreementMost percent is treated as
	// disagreementMost. An alarm is raised at disagreementAlarm percent × seconds. In healthy
	// drives, the greatest sum was 16.6.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree                         = 3.0
	commandFree                         = 2.0
	// aloneFree, in percent, replaces sensorsFree and commandFree for two readings with the same
	// time stamp, if one of the two sensors has no other reading in the 2.5 s (bracketWithin)
	// before. The time stamps of such readings may be wrong by seconds. An example is a gateway
	// that sends only the last reading of each sensor, once a minute.
	aloneFree = 6.0

	// These thresholds are for the rule on stuck sensors. Its measure is how long one sensor of a
	// pair keeps its value within stuckWithin percent, although readings prove that the other
	// sensor was at two positions more than stuckRange percent apart (more than stuckRangeAtEnd if
	// the first sensor may be at the end of its range). An alarm is raised at stuckAlarm seconds.
	// The position of the other sensor is sure if one of its readings was taken before the reading
	// of the first sensor, and one after it. These two readings must be at most sureWithin seconds
	// apart. If the newest readings of both sensors have the same time stamp, the two readings must
	// also be at least sureFrom seconds apart. If the position is not sure, it is taken to be
	// between the extremes of three readings. In healthy drives, the greatest measure was 1 s.
	sureWithin, sureFrom                = 2.1, 1.2
	stuckRangeAtEnd                     = 30.0
	stuckWithin, stuckRange, stuckAlarm = 1.0, 8.0, 5.0

	// These thresholds are for the noise of one sensor of a pair. The measure is the sum of the
	// sensor's steps, the differences between two consecutive readings, in percent. Each step adds
	// at most noiseMost, less noiseFree and less the movement of the other sensor. One wrong
	// reading makes two steps, which are too few for an alarm. The sum decays with the time
	// constant noiseDecay, in seconds. An alarm is raised at noiseAlarm percent. In healthy drives,
	// the greatest sum was 19.2.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// These thresholds are for the noise of a sensor without another sensor of the same position.
	// The measure is the sum of the sensor's steps, each at most travelMost percent; of plate sensor
	// A, only those steps that turn its direction, because cruise control moves a plate far, but
	// smoothly. The sum decays with the time constant travelDecay, in seconds. Any sensor raises an
	// alarm if its sum reaches travelAlarm, which is more than any foot moves a pedal; the greatest
	// sum in healthy drives was 203. For plate sensor A, this limit is plateTravelAlarm (in healthy
	// drives, at most 126).
	//
	// The sum of plate sensor A is also compared with the sum of engine load. An alarm is raised if
	// the plate's sum exceeds the sum of engine load by loadTravelAlarm (in healthy drives, by at
	// most 5, and by 35 if a signal is read every 1.5 s). Without engine load, the plate's sum is
	// compared with the sum of the pedal. If the plate is known to follow the pedal, an alarm is
	// raised at a difference of followTravelAlarm, and otherwise at a difference of pedalTravelAlarm
	// (in healthy drives, at most 47 % of either).
	travelMost, travelDecay = 10.0, 30.0
	loadTravelAlarm         = 40.0
	followTravelAlarm       = 50.0
	pedalTravelAlarm        = 120.0
	travelAlarm             = 450.0
	plateTravelAlarm        = 250.0

	// These thresholds are for the rule on electrical limits. Its measure is how long a sensor reads
	// about 0 or 100 %, although another reading shows that it cannot be there. An alarm is raised
	// at lowLimitAlarm seconds below or highLimitAlarm seconds above. In healthy drives, the measure
	// was always 0.
	//
	// Many healthy sensors read 0 or 100 %: the scale of some begins at 0, a foot can press a pedal
	// to its end, and a diesel's flap may rest at 100 %. So there is more to show. At the low end,
	// the sensor must have a live zero: in restKnown hundredths of a second with the car stationary,
	// it never read less than liveZero percent. (The usual sensor gives 0.5 V of 5 V at rest.) It
	// then cannot read as little as lowLimit. At 100 %, the plate must have been below for
	// drivenKnown hundredths of a second of driving, and now the foot must be off the pedal, or
	// engine load below fullLoad, or if neither is read, the car stationary. A pedal at 100 % is
	// contradicted by a plate that is as closed as without a demand.
	lowLimit, highLimit           = 4.0, 95.0
	lowLimitAlarm, highLimitAlarm = 3.0, 5.0
	liveZero, restKnown           = 10, 800
	drivenKnown                   = 12_000
	fullLoad                      = 50.0

	// These thresholds are for the rule on plate and pedal. A demand is a rise of the pedal by
	// pedalRise percent that lasts pedalLasts seconds. If the car reports no pedal, a demand is a
	// rise of engine load by loadRise percent that lasts loadLasts seconds. The plate follows a
	// demand if the plate moves by more than plateMoves percent; otherwise it ignores the demand.
	// The readings of plate and demand must be at most bracketWithin old. An alarm is raised when a
	// plate that is known to follow ignores missedAlarm demands in a row. In healthy drives, no
	// plate ignored more than 1 in a row.
	//
	// A plate is known to follow if three conditions hold. It has followed at least followsAfter
	// demands. It has followed at least ignoredShare demands for each demand that it ignored. And
	// it was seen for restsFor seconds without a demand, always below restsClosedBelow percent. (An
	// engine load up to loadRests percent above the lowest one is no demand, because an idling
	// engine bears some load.) The last condition excludes diesel engines: their plate rests open
	// (at 83.5 % on one car), whatever the pedal does. Once the plate is trusted,
	// an open rest no longer excludes the car, because it is more likely a plate stuck open. It is
	// trusted after trustedAt demands that it followed while it always rested below
	// trustedRest percent, or after trustedOpen; then, a plate that rested open before is one that
	// rests closed, if this has lasted closedShare times as long. (A diesel whose plate was at first closed at idle,
	// at up to 49 %, followed 22 before it rested open.)
	pedalRise, pedalLasts      = 6.0, 4.0
	loadRise, loadLasts        = 20.0, 3.0
	missedAlarm                = 3.0
	plateMoves                 = 1.5
	followsAfter, ignoredShare = 8, 8
	trustedAt, trustedRest     = 12, 28.0
	trustedOpen                = 30
	restsClosedBelow           = 50.0
	restsFor, loadRests        = 20.0, 12.0
	closedShare                = 4.0

	// engineHolds is how long a reading of engine speed 0 is valid. During that time, nothing is
	// assumed to move the throttle plate: electrical limits are not checked, and the plate is not
	// compared with the command or the pedal. Loggers read the engine speed at least once in that
	// time.
	engineHolds = 10 * time.Second

	// An anomaly ends when its rule has had readings for calmFor seconds that measure less than
	// half of what raises the alarm. A fault that comes and goes is not repaired between two
	// episodes, so each anomaly that has ended doubles this time for the next one, up to
	// mostReturns times, and returnShare of the evidence raises it.
	calmFor     = 60.0
	mostReturns = 4
	returnShare = 0.7
	// codeGoneFor is for how many seconds the lists of trouble codes must at least have been without
	// a throttle code before the anomaly ends. For its beginning, one list with a code is enough,
	// because the car itself reports a code only after it has confirmed the fault. A list less than
	// codeRoundFor seconds after one with a code may be the answer of another computer.
	codeGoneFor  = calmFor
	codeRoundFor = 10
)

// NumThrottlePairs is the number of pairs of sensors that should agree.
const NumThrottlePairs = 3

// throttlePairs are the pairs of sensors that should agree: y should follow x, with a deviation of
// at most free percent. The rule disagree reports a disagreement of the two sensors, and the rule
// stuck reports that one of them is stuck.
var throttlePairs = [NumThrottlePairs]struct {
	x, y            ThrottleSensor
	disagree, stuck ThrottleRule
	free            float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
