package throttle

import "time"

type Rule uint8

// The numbers are stored in states, so new rules go to the end.
const (
	NoRule Rule = iota
	RuleTroubleCode
	RuleRedundantSensors
	RulePlateCommand
	RulePlatePedal
	RuleStuckSensor
	RuleElectricalLimit
	RuleNoise
)

// A version increases with every change of what the rule finds. The trouble codes (SAE J2012) are
// those of the engine computer for the fault. It checks voltages every few milliseconds; readings
// are seconds apart, so these rules wait longer.
var rules = [...]struct {
	name    string
	version int
	text    string
}{
	NoRule:          {"throttle/none", 1, "normal: every measure is within its limit"},
	RuleTroubleCode: {"throttle/trouble-code", 4, "the car reports a trouble code of its throttle or pedal"},
	// P2135, P2138
	RuleRedundantSensors: {"throttle/redundant-sensors", 3,
		"two sensors of one position no longer agree as they did on this car"},
	// P2101, P0638, P2111, P2112
	RulePlateCommand: {"throttle/plate-command", 4, "the plate is not where it is commanded to be"},
	// P0121, P0068, P2119
	RulePlatePedal: {"throttle/plate-pedal", 5, "the plate no longer moves when it is asked to, as it did on this car"},
	// P0121, P0221, P2121, P2126
	RuleStuckSensor: {"throttle/stuck-sensor", 3, "a sensor is stuck while its partner moves"},
	// P0122, P0123, P0222, P0223, P2122, P2123, P2127, P2128
	RuleElectricalLimit: {"throttle/electrical-limit", 4,
		"a sensor is at the end of its electrical range, where this car's cannot be"},
	// P0124, P0224, P2124, P2129
	RuleNoise: {"throttle/noise", 4, "a sensor moves where no plate or pedal does"},
}

// Positions are in percent of the sensor's range (SAE J1979, steps of 0.4), durations in seconds.
// docs/verdicts.md explains the rules.
//
// No threshold was found by search: each is about twice the greatest measure in 47 hours of healthy
// driving, which the comments give. TestMargins of internal/lab/faults cross-validates that.
const (
	// Between two readings so close, the position is between their values: a foot moves a pedal
	// within a second. Others are compared only under one time stamp. With 5 s, 23 of 94 healthy
	// drives thinned to a reading in 3 or 4 s had a false anomaly.
	bracketWithin = 2.5
	// A sensor's extremes are kept by period, as a logger gives readings of a row one time stamp.
	bucketMillis = 500
	// The most that one reading adds to a measure; coversAlone if there is no other within
	// bracketWithin, because its time stamp may be wrong by seconds.
	coversMost, coversAlone = 2.0, 1.0

	// After one sensor of a pair has moved by movesBy, an unchanged value of the other is a
	// repetition for one and a half lags and lagSpare. The lag lasts until the other moves by
	// followsBy and agrees. Lags are in hundredths of a second.
	movesBy, followsBy          = 2.0, 1.5
	lagLeast, lagMost, lagSpare = 5, 2500, 50

	// A pair is learned while the recent readings of each sensor are within settledWithin. Both
	// must have been settled for matureAfter to be compared, and for trustedAfter to be learned
	// only within the normal difference, not twice that.
	settledWithin, matureAfter, trustedAfter = 2.0, 12.0, 30.0
	// the greatest weight, in seconds, of a pair's memory, and of what a new drive keeps of it
	pairMemory, pairDriveMemory = 300.0, 20.0
	// slopePrior is the weight, in percent² × seconds, of a slope of 1, which may be wrong by
	// slopeDoubt. No real pair is below slopeLeast. With slopeLeverage, one chance agreement far
	// from the usual positions does not determine the slope.
	slopePrior, slopeDoubt, slopeLeast, slopeLeverage = 50.0, 2.0, 0.3, 60.0
	// A range may end here: on one car, sensor B stays at 99.2 % while A moves from 67 to 78 %.
	// Others end at 4.75 or 4.5 V of 5 V: from clipsFrom on, where the sensor never read more.
	saturatedFrom, clipsFrom = 97.0, 80

	// Redundant sensors, plate and command: distance (at most disagreementMost) less the allowance,
	// times seconds. Healthy: at most 16.6. The allowance is aloneFree if time stamps may be wrong
	// by seconds, as from a gateway that sends all last readings once a minute.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree, commandFree, aloneFree = 3.0, 2.0, 6.0

	// Stuck sensors: seconds within stuckWithin, although the other was surely at two positions
	// more than stuckRange apart, or at the end of a range, stuckRangeAtEnd. Sure is between two
	// readings up to sureWithin apart, and from sureFrom under one time stamp; else between the
	// extremes of three. Healthy: at most 1 s.
	sureWithin, sureFrom                                 = 2.1, 1.2
	stuckWithin, stuckRange, stuckRangeAtEnd, stuckAlarm = 1.0, 8.0, 30.0, 5.0

	// Noise of one sensor of a pair: steps, each at most noiseMost, less noiseFree and the movement
	// of the other. One wrong reading makes two steps, which are too few. Healthy: at most 19.2.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// Noise of a sensor alone: steps, each at most travelMost; of plate A, only those that turn,
	// because cruise control moves a plate far, but smoothly. Healthy: at most 203, of plate A 126;
	// plate A beyond engine load at most 5, and 35 if read every 1.5 s; beyond the pedal 47 % of
	// either limit.
	travelMost, travelDecay, travelAlarm, plateTravelAlarm = 10.0, 30.0, 450.0, 250.0
	loadTravelAlarm, followTravelAlarm, pedalTravelAlarm   = 40.0, 50.0, 120.0

	// Electrical limits: seconds at about 0 or 100 % where another reading shows that the sensor
	// cannot be. Healthy: always 0. Many healthy sensors read 0 or 100 %: some scales begin at 0, a
	// foot presses a pedal to its end, and a diesel's flap may rest at 100 %. The usual live zero
	// is 0.5 V of 5 V. restKnown and drivenKnown are in hundredths of a second.
	lowLimit, highLimit, lowLimitAlarm, highLimitAlarm = 4.0, 95.0, 3.0, 5.0
	liveZero, restKnown, drivenKnown, fullLoad         = 10, 800, 12_000, 50.0

	// Plate and pedal: how many demands the plate ignored in a row. Healthy: at most 1. The plate
	// must be known to follow, with a closed rest: the plates of diesels rest open (at 83.5 % on
	// one car). An idling engine bears up to loadRests.
	pedalRise, pedalLasts, loadRise, loadLasts = 6.0, 4.0, 20.0, 3.0
	missedAlarm, plateMoves                    = 3.0, 1.5
	followsAfter, ignoredShare                 = 8, 8
	restsClosedBelow, restsFor, loadRests      = 50.0, 20.0, 12.0
	// A plate that rests open after it followed trustedOpen demands is stuck open (a diesel whose
	// plate was at first closed at idle, at up to 49 %, followed 22). After an open rest before
	// that, a closed one must last closedShare times as long.
	trustedAt, trustedRest, trustedOpen, closedShare = 12, 28.0, 30, 4.0

	// How long an engine speed of 0 is valid; loggers read it at least that often.
	engineHolds = 10 * time.Second

	// A fault may come and go: each anomaly that has ended doubles the calm time of the next, up to
	// mostReturns times, and returnShare of the evidence raises it.
	calmFor, mostReturns, returnShare = 60.0, 4, 0.7
	// A list without a code within codeRoundFor may be of another computer.
	codeGoneFor, codeRoundFor = calmFor, 10
)

const NumPairs = 3

// In each pair, y should follow x within free percent.
var pairs = [NumPairs]struct {
	x, y            Sensor
	disagree, stuck Rule
	free            float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
