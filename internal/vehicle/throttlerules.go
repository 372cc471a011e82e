package vehicle

import "time"

type ThrottleRule uint8

// The numbers are stored in states, so new rules go to the end.
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

// throttleRules: a version increases with every change of what the rule finds. Above each rule are
// the trouble codes of SAE J2012 that the car's own engine computer sets for the same fault. It
// checks raw voltages every few milliseconds; readings here are seconds apart, so these rules wait
// longer.
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
	// Actuator range/performance, stuck plate: P2101, P0638, P2111, P2112.
	RulePlateCommand: {"throttle/plate-command", 4, "the plate is not where it is commanded to be"},
	// Position rationality: P0121, P0068, P2119.
	RulePlatePedal: {"throttle/plate-pedal", 5, "the plate no longer moves when it is asked to, as it did on this car"},
	// Range/performance: P0121, P0221, P2121, P2126.
	RuleStuckSensor: {"throttle/stuck-sensor", 3, "a sensor is stuck while its partner moves"},
	// Circuit low and high: P0122, P0123, P0222, P0223, P2122, P2123, P2127, P2128.
	RuleElectricalLimit: {"throttle/electrical-limit", 4,
		"a sensor is at the end of its electrical range, where this car's cannot be"},
	// Circuit intermittent: P0124, P0224, P2124, P2129.
	RuleNoise: {"throttle/noise", 3, "a sensor moves where no plate or pedal does"},
}

func (r ThrottleRule) String() string { return throttleRules[min(r, numThrottleRules-1)].name }

// Thresholds of the throttle rules. Positions are in percent of the sensor's range (SAE J1979, one
// byte, so steps of 0.4), durations in seconds.
//
// The comments give the greatest measure in 47 hours of healthy driving. No threshold was found by
// search: each is a round number, about twice that measure. docs/verdicts.md has the
// cross-validation of this factor, at 1.8; TestMargins of internal/lab/faults prints it.
const (

	// bracketWithin: between two readings at most that many seconds apart, the position is between
	// the two values; a foot moves a pedal in less than a second. Readings farther apart are
	// compared only if they have the same time stamp. With 5 s, 23 of 94 healthy drives thinned to
	// one reading in 3 or 4 s had a false anomaly.
	bracketWithin = 2.5
	// bucketMillis is the least length of a period over which the extremes of a sensor are kept.
	// Sensors are compared by this range, because a logger gives all readings of a row one time
	// stamp, although it did not read them at the same moment.
	bucketMillis = 500
	// coversMost is the most that one comparison or reading adds to a measure. coversAlone is the
	// same for a reading with no other of its sensor within bracketWithin, whose time stamp may be
	// wrong by seconds.
	coversMost, coversAlone = 2.0, 1.0

	// When one sensor of a pair has moved by movesBy, an unchanged value of the other is a
	// repetition for one and a half times its lag, plus lagSpare. The lag is learned: the time
	// until the other has moved by followsBy and agrees. Lags are in hundredths of a second; others
	// than lagLeast to lagMost are ignored.
	movesBy, followsBy = 2.0, 1.5
	lagLeast, lagMost  = 5, 2500
	lagSpare           = 50

	// The relation of a pair is learned only while the recent readings of both sensors differ by at
	// most settledWithin.
	settledWithin = 2.0
	// Both sensors must have been settled for matureAfter before they are compared. The relation is
	// learned from readings that disagree by at most the normal difference (sensorsFree,
	// commandFree), until trustedAfter by twice that.
	matureAfter, trustedAfter = 12.0, 30.0
	// pairMemory is the greatest total weight, in seconds, of the readings behind the relation of a
	// pair; a new drive reduces it to pairDriveMemory.
	pairMemory, pairDriveMemory = 300.0, 20.0
	// The slope of a pair is how much y moves when x moves by 1 percent. slopePrior is the weight,
	// in percent² × seconds, of the assumption that it is 1; while nothing is known, it may differ
	// by slopeDoubt, so that half the slope and opposite directions can be learned. No real pair
	// has an absolute slope below slopeLeast.
	slopePrior, slopeDoubt, slopeLeast = 50.0, 2.0, 0.3
	// slopeLeverage limits, in percent² × seconds, what one comparison adds to the weight of the
	// slope. Otherwise one chance agreement far from the usual positions would determine it.
	slopeLeverage = 60.0
	// A sensor at or beyond saturatedFrom, or 100 less that, may be at the end of its range: on one
	// car, sensor B stays at 99.2 % while A moves from 67 to 78 %. Others end at 4.75 or 4.5 V of 5
	// V: from clipsFrom on, where the sensor never read more.
	saturatedFrom = 97.0
	clipsFrom     = 80

	// Rules on redundant sensors and on plate and command: the sum of distance, at most
	// disagreementMost, less the allowance of sensorsFree or commandFree, times seconds; the alarm
	// is in percent × seconds. In healthy drives, at most 16.6.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree                         = 3.0
	commandFree                         = 2.0
	// aloneFree is the allowance if one of two readings of the same time has no other reading in
	// bracketWithin before, for example from a gateway that sends the last reading of each sensor
	// once a minute: the time stamp may be wrong by seconds.
	aloneFree = 6.0

	// Rule on stuck sensors: the seconds for which one sensor keeps its value within stuckWithin,
	// although the other was surely at two positions more than stuckRange apart (stuckRangeAtEnd if
	// the first may be at the end of its range). A position is sure between two readings at most
	// sureWithin apart, and at least sureFrom if the newest readings have the same time stamp;
	// otherwise it is between the extremes of three readings. In healthy drives, at most 1 s.
	sureWithin, sureFrom                = 2.1, 1.2
	stuckRangeAtEnd                     = 30.0
	stuckWithin, stuckRange, stuckAlarm = 1.0, 8.0, 5.0

	// Noise of one sensor of a pair: the sum of its steps, each at most noiseMost, less noiseFree
	// and the movement of the other, with the time constant noiseDecay. One wrong reading makes two
	// steps, which are too few. In healthy drives, at most 19.2.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// Noise of a sensor alone: the sum of its steps, each at most travelMost, with the time
	// constant travelDecay; of plate sensor A, only the steps that turn its direction, because
	// cruise control moves a plate far, but smoothly. travelAlarm is more than any foot moves a
	// pedal (healthy: at most 203), plateTravelAlarm is for plate A (126). Plate A is also compared
	// with the sum of engine load (healthy: at most 5 more, and 35 if read every 1.5 s), or without
	// it, with that of the pedal (healthy: at most 47 % of either limit): followTravelAlarm if the
	// plate is known to follow, else pedalTravelAlarm.
	travelMost, travelDecay = 10.0, 30.0
	loadTravelAlarm         = 40.0
	followTravelAlarm       = 50.0
	pedalTravelAlarm        = 120.0
	travelAlarm             = 450.0
	plateTravelAlarm        = 250.0

	// Rule on electrical limits: the seconds at about 0 or 100 % where another reading shows that
	// the sensor cannot be. In healthy drives, always 0.
	//
	// Many healthy sensors read 0 or 100 %: the scale of some begins at 0, a foot presses a pedal
	// to its end, and a diesel's flap may rest at 100 %. So at the low end, the sensor must have a
	// live zero: in restKnown hundredths of a second at rest it never read less than liveZero (the
	// usual one gives 0.5 V of 5 V). At 100 %, the plate must have been below for drivenKnown
	// hundredths of driving, and the foot must be off the pedal, or engine load below fullLoad, or
	// without these, the car stationary. A pedal at 100 % is contradicted by a plate as closed as
	// without a demand.
	lowLimit, highLimit           = 4.0, 95.0
	lowLimitAlarm, highLimitAlarm = 3.0, 5.0
	liveZero, restKnown           = 10, 800
	drivenKnown                   = 12_000
	fullLoad                      = 50.0

	// Rule on plate and pedal. A demand is a rise of the pedal by pedalRise for pedalLasts, or
	// without a pedal, of engine load by loadRise for loadLasts. The plate follows if it moves by
	// more than plateMoves. The alarm is missedAlarm ignored demands in a row of a plate that is
	// known to follow; in healthy drives, at most 1.
	//
	// A plate is known to follow if it has followed followsAfter demands, ignoredShare for each
	// that it ignored, and was seen for restsFor without a demand, always below restsClosedBelow. A
	// load up to loadRests above the lowest is no demand, because an idling engine bears some. The
	// rest excludes diesels, whose plate rests open (at 83.5 % on one car), whatever the pedal
	// does.
	//
	// A trusted plate is not excluded by an open rest, which is rather a plate stuck open: after
	// trustedAt followed demands with a rest below trustedRest, or after trustedOpen (a diesel
	// whose plate was at first closed at idle, at up to 49 %, followed 22). A rest that was open
	// before then counts as closed if that has lasted closedShare times as long.
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

	// engineHolds is how long an engine speed of 0 is valid; loggers read it at least that often.
	// Until then, nothing is assumed to move the plate.
	engineHolds = 10 * time.Second

	// An anomaly ends after calmFor seconds of readings below half of its alarm. A fault that comes
	// and goes is not repaired between two episodes: each anomaly that has ended doubles this time
	// for the next, up to mostReturns times, and returnShare of the evidence raises that.
	calmFor     = 60.0
	mostReturns = 4
	returnShare = 0.7
	// codeGoneFor is for how long the lists must have been without a throttle code before the
	// anomaly ends. One list with a code begins it, because the car has already confirmed the
	// fault. A list less than codeRoundFor after one with a code may be the answer of another
	// computer.
	codeGoneFor  = calmFor
	codeRoundFor = 10
)

const NumThrottlePairs = 3

// In each pair, y should follow x, with a deviation of at most free percent.
var throttlePairs = [NumThrottlePairs]struct {
	x, y            ThrottleSensor
	disagree, stuck ThrottleRule
	free            float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
