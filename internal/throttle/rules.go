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

// A version increases with every change of what the rule finds. The trouble codes (SAE J2012) above
// a rule are those that the engine's computer reports for the same fault.
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
//
// No threshold was found by search: each is about twice the greatest measure in 47 hours of healthy
// driving ("Healthy" below).
const (
	// Between two readings so close, a position is taken to be between their values. A foot moves a
	// pedal within a second, so with longer gaps it may not be: then only readings of one time
	// stamp are compared. With 5 s, 23 of 94 healthy drives thinned to a reading in 3 or 4 s had a
	// false anomaly.
	bracketWithin = 2.5
	// The lowest and highest values of a sensor are those of periods of bucketMillis.
	bucketMillis = 500
	// The most seconds that one reading adds to a measure; coversAlone if it is not within
	// bracketWithin of the sensor's last one, because time stamps may then be wrong by seconds.
	coversMost, coversAlone = 2.0, 1.0

	// After one sensor of a pair has moved by movesBy, an unchanged value of the other is a
	// repetition of an old one for one and a half lags and lagSpare. A lag lasts until the other
	// moves by followsBy and agrees. Lags are in hundredths of a second.
	movesBy, followsBy          = 2.0, 1.5
	lagLeast, lagMost, lagSpare = 5, 2500, 50

	// A pair's line is learned while the recent readings of each sensor are within settledWithin.
	// It is used after matureAfter seconds of these. Until trustedAfter, readings up to twice the
	// normal difference away are learned, too.
	settledWithin, matureAfter, trustedAfter = 2.0, 12.0, 30.0
	// the greatest weight, in seconds, of a pair's memory, and of what a new drive keeps of it
	pairMemory, pairDriveMemory = 300.0, 20.0
	// Before it is learned, a line's slope is 1, with the weight slopePrior, and may be wrong by
	// slopeDoubt. No real pair is below slopeLeast. slopeLeverage limits the weight of one
	// agreement far from the mean, which may be chance. Both weights are in percent² × seconds.
	slopePrior, slopeDoubt, slopeLeast, slopeLeverage = 50.0, 2.0, 0.3, 60.0
	// A scale may end from saturatedFrom on: on one car, sensor B stays at 99.2 % while A moves
	// from 67 to 78 %. Others end at 4.75 or 4.5 V of 5 V: from clipsFrom on, the highest value
	// ever read may be the end.
	saturatedFrom, clipsFrom = 97.0, 80

	// Redundant sensors, plate and command: distance from the line (at most disagreementMost) less
	// the allowance, times seconds. Healthy: at most 16.6. The allowance is aloneFree if time
	// stamps may be wrong by seconds, as from a gateway that sends all last readings once a minute.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree, commandFree, aloneFree = 3.0, 2.0, 6.0

	// Stuck sensors: seconds that one is within stuckWithin, although the other was surely at two
	// positions more than stuckRange apart, or if the one is at the end of its scale,
	// stuckRangeAtEnd. The other was surely between its last two readings if these are at most
	// sureWithin apart, and at least sureFrom under one time stamp; else between its last three.
	// Healthy: at most 1 s.
	sureWithin, sureFrom                                 = 2.1, 1.2
	stuckWithin, stuckRange, stuckRangeAtEnd, stuckAlarm = 1.0, 8.0, 30.0, 5.0

	// Noise of one sensor of a pair: steps, each at most noiseMost, less noiseFree and the movement
	// of the other. One wrong reading makes two steps, which are too few. Healthy: at most 19.2.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// Noise of a sensor alone: steps, each at most travelMost; of plate A, only those that change
	// direction, because cruise control moves a plate far, but smoothly. Healthy: at most 203, of
	// plate A 126; of plate A less engine load at most 5, and 35 if read every 1.5 s; less the
	// pedal, at most 47 % of either limit.
	travelMost, travelDecay, travelAlarm, plateTravelAlarm = 10.0, 30.0, 450.0, 250.0
	loadTravelAlarm, followTravelAlarm, pedalTravelAlarm   = 40.0, 50.0, 120.0

	// Electrical limits: seconds at about 0 or 100 % where another reading shows that the sensor
	// cannot be. Healthy: always 0. Many healthy sensors read 0 or 100 %: some scales begin at 0, a
	// foot presses a pedal to its end, and a diesel's flap may rest at 100 %. Others usually begin
	// at 0.5 V of 5 V (liveZero). restKnown and drivenKnown are in hundredths of a second.
	lowLimit, highLimit, lowLimitAlarm, highLimitAlarm = 4.0, 95.0, 3.0, 5.0
	liveZero, restKnown, drivenKnown, fullLoad         = 10, 800, 12_000, 50.0

	// Plate and pedal: how many demands (rises of the pedal or of engine load) the plate ignored in
	// a row. Healthy: at most 1. The plate must be known to follow, and to rest closed: those of
	// diesels rest open (at 83.5 % on one car). The load of an idling engine is up to loadRests
	// above the lowest.
	pedalRise, pedalLasts, loadRise, loadLasts = 6.0, 4.0, 20.0, 3.0
	missedAlarm, plateMoves                    = 3.0, 1.5
	followsAfter, ignoredShare                 = 8, 8
	restsClosedBelow, restsFor, loadRests      = 50.0, 20.0, 12.0
	// An open rest is a fault only after trustedAt followed demands with a rest below trustedRest,
	// or after trustedOpen: one healthy diesel's plate first rested closed, at up to 49 %, followed
	// 22 demands, and then rested open. Before that, a closed rest must last closedShare times as
	// long as an open one to make up for it.
	trustedAt, trustedRest, trustedOpen, closedShare = 12, 28.0, 30, 4.0

	// How long an engine speed of 0 is valid; loggers read it at least that often.
	engineHolds = 10 * time.Second

	// A fault may come and go: each anomaly that has ended doubles the time without evidence that
	// ends the next (first calmFor), up to mostReturns times, and returnShare of the evidence
	// raises it.
	calmFor, mostReturns, returnShare = 60.0, 4, 0.7
	// A car sends the lists of all its computers within codeRoundFor seconds (see ObserveCodes).
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
