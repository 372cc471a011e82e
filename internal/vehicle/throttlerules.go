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

// throttleRules gives each rule its name, version, source and text. The source is the
// monitor of the engine's own computer that asks the same question, named by the SAE J2012
// codes that the monitor sets. Those monitors run every few milliseconds on raw voltages.
// The rules here see readings that are seconds apart, so they wait longer. The version
// increases with every change of what the rule finds.
var throttleRules = [numThrottleRules]struct {
	name    string
	version int
	source  string
	text    string
}{
	NoThrottleRule: {"throttle/none", 1, "",
		"normal: every measure is within its limit"},
	RuleTroubleCode: {"throttle/trouble-code", 2,
		"SAE J2012 families P0120–P0124, P0220–P0229, P0638, P0639, P2100–P2140, P2172–P2176",
		"the car reports a trouble code of its throttle or pedal"},
	RuleRedundantSensors: {"throttle/redundant-sensors", 2,
		"voltage correlation: P2135 (throttle A/B), P2138 (pedal D/E)",
		"two sensors of one position no longer agree as they did on this car"},
	RulePlateCommand: {"throttle/plate-command", 3,
		"throttle actuator range/performance and stuck plate: P2101, P0638, P2111, P2112",
		"the plate is not where it is commanded to be"},
	RulePlatePedal: {"throttle/plate-pedal", 3, "throttle position rationality: P0121, P0068, P2119",
		"the plate no longer moves when it is asked to, as it did on this car"},
	RuleStuckSensor: {"throttle/stuck-sensor", 2, "sensor range/performance: P0121, P0221, P2121, P2126",
		"a sensor is stuck while its partner moves"},
	RuleElectricalLimit: {"throttle/electrical-limit", 2,
		"circuit low and high: P0122, P0123, P0222, P0223, P2122, P2123, P2127, P2128",
		"a sensor is at the end of its electrical range, where this car's does not rest"},
	RuleNoise: {"throttle/noise", 2, "circuit intermittent: P0124, P0224, P2124, P2129",
		"a sensor moves where no plate or pedal does"},
}

// String returns the rule's name.
func (r ThrottleRule) String() string { return throttleRules[min(r, numThrottleRules-1)].name }

// Thresholds of the throttle rules. Positions are in percent of the sensor's range, as PIDs
// $11, $47, $49, $4A and $4C of SAE J1979 give them (one byte, so steps of 0.4); durations
// are in seconds.
//
// "Healthy" is the greatest value that 47 hours of healthy driving reached. No threshold
// was found by search: each is a round number near twice that value. They were
// cross-validated by halves of the files and by kinds of car: with a threshold of 1.8 times
// what one part reached, how many drives of the other part are anomalous? docs/verdicts.md
// has the results; TestMargins of internal/lab/faults prints them.
const (
	// How to compare readings of two sensors that were not read at the same time.

	// bracketWithin is the longest time between two readings over which a sensor's position
	// is taken as known: loggers read a sensor every 0.1 to 2 s, and a foot needs less than
	// a second. After a longer silence, only readings with one time stamp are compared.
	// When this was 5, healthy drives thinned out to a reading in 3 or 4 s gave 23 false
	// anomalies in 94 drives.
	bracketWithin = 2.5
	// bucketMillis is the least time that a sensor's range spans, in milliseconds: loggers
	// give a whole row one time stamp, although its sensors were not read at once.
	bucketMillis = 500
	// most is the longest time that one comparison may cover, in seconds: a gap is not
	// evidence. aloneMost is the same for readings with no others near them, whose time
	// stamps may be seconds off.
	most, aloneMost = 2.0, 1.0

	// How to tell a reading from a repetition of an old one. A sensor's unchanged value is
	// a repetition if its partner has moved by movesBy, for as long as the sensor took to
	// follow before, and half of that, and lagSpare. The sensor has followed if it moved by
	// followsBy and agrees. Lags are in hundredths of a second; those below lagLeast and
	// above lagMost are ignored.
	movesBy, followsBy = 2.0, 1.5
	lagLeast, lagMost  = 5, 2500
	lagSpare           = 50

	// How the relation of two sensors is learned.

	// settledWithin is the most that either sensor may move for the pair to be learned
	// from.
	settledWithin = 2.0
	// matureAfter is how long they must have been settled before they are judged. Until
	// trustedAfter, pairs may deviate twice as much and still be learned from.
	matureAfter, trustedAfter = 12.0, 30.0
	// memory is the greatest weight of the past. At a new drive it is reduced to
	// driveMemory.
	memory, driveMemory = 300.0, 20.0
	// slopePrior is the weight, in percent² × seconds, of the assumption that y moves as
	// much as x. While nothing more is known, the slope may be off by slopeDoubt. Pairs at
	// half the slope and pairs that run in opposite directions are learned; no pair is
	// built with less than slopeLeast.
	slopePrior, slopeDoubt, slopeLeast = 50.0, 2.0, 0.3
	// leverage limits, in the same unit, what one comparison adds to what is known of the
	// slope: a chance agreement far from rest must not decide it.
	leverage = 60.0
	// A sensor above saturated, or below 100 less that, may be at the end of its range. On
	// one car throttle B stays at 99.2 while A continues from 67 to 78.
	saturated = 97.0

	// Redundant sensors, plate and command: the sum of their distance beyond the allowance
	// of the pair, over time. At most disagreementMost percent of a distance are added;
	// disagreementAlarm is in percent × seconds. Healthy: 16.6 of 36.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree                         = 3.0
	commandFree                         = 2.0
	// aloneFree is the allowance if time stamps may be seconds off, as in a gateway that
	// sends its last readings every minute.
	aloneFree = 6.0

	// Stuck sensor: the sensor keeps its value within stuckWithin for stuckAlarm, and was
	// read while its partner was surely in two places stuckRange apart (stuckRangeAtEnd if
	// it may be at the end of its range). Surely means at two consecutive readings, one
	// before and one after, if these are within sureWithin (and at least sureFrom apart if
	// both sensors carry one time stamp); otherwise at three readings. Healthy: 1 of 5.
	sureWithin, sureFrom                = 2.1, 1.2
	stuckRangeAtEnd                     = 30.0
	stuckWithin, stuckRange, stuckAlarm = 1.0, 8.0, 5.0

	// Noise compared with a partner: the sum of steps, each at most noiseMost (one wrong
	// reading is two steps, which raise no alarm), less noiseFree and less what the
	// partner's range explains. The sum decays with noiseDecay. Healthy: 19.2 of 40.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// Noise without a partner: the sum of steps, each at most travelMost, which decays with
	// travelDecay. An alarm is what exceeds the movement of engine load (healthy 26 of 60)
	// or of the pedal (healthy 22 of 60 if the plate follows it, 109 of 200 if it also
	// moves by itself), or what exceeds any foot's movement (healthy 203 of 450).
	travelMost, travelDecay = 10.0, 30.0
	loadTravelAlarm         = 60.0
	followTravelAlarm       = 60.0
	pedalTravelAlarm        = 200.0
	travelAlarm             = 450.0

	// Electrical limit: the 0 and 255 of J1979, with room for rounding. A grounded
	// wire differs from a pedal whose scale begins at 0: its sensor was seen elsewhere
	// first, at rest and in motion, for plateSeen, or pedalSeen for a pedal. A
	// throttle that is wide open may reach 100 under load, so above fullLoad that is not
	// evidence. Healthy: 0.
	lowLimit, highLimit           = 0.4, 99.8
	lowLimitAlarm, highLimitAlarm = 3.0, 5.0
	plateSeen, pedalSeen          = 20.0, 60.0
	fullLoad                      = 75.0

	// Plate and pedal (engine load if the car reports no pedal), each read within
	// bracketWithin. A demand is a rise that lasts. The plate has followed if it moved by
	// plateMoves. The rule requires that it followed followsAfter times, ignored at most
	// one in ignoredShare, and never rested open, seen at rest for restsFor: a diesel's
	// plate rests open (83.5 % on one) whatever the pedal does. Then missedAlarm demands in
	// a row must be ignored. Healthy: 1 of 3.
	pedalRise, pedalLasts      = 6.0, 4.0
	loadRise, loadLasts        = 20.0, 3.0
	missedAlarm                = 3.0
	plateMoves                 = 1.5
	followsAfter, ignoredShare = 8, 8
	restsClosedBelow           = 50.0
	restsFor, loadRests        = 20.0, 12.0

	// engineHolds is how long a reading of engine speed 0 means that nothing drives the
	// plate. During that time the limits, the command and the pedal are not checked.
	// Loggers read the engine speed at least that often.
	engineHolds = 10 * time.Second

	// Recovery: the verdict is normal again when the rule has looked for calmFor without
	// finding half of what raises it. An anomaly whose sensors are no longer reported is
	// dropped after newDrive of driving. An anomaly that has outlasted forgetDrives drives
	// belongs to another car or to other sensors: everything is learned again from the
	// beginning.
	calmFor      = 60.0
	forgetDrives = 3
	// codeGoneFor is the same for a trouble code: the time from a list without it in which
	// no list holds one. A code needs no debounce, because the car debounces it.
	codeGoneFor = calmFor * time.Second
)

// NumThrottlePairs is the number of pairs of sensors that should agree.
const NumThrottlePairs = 3

// throttlePairs are the pairs of sensors that should agree: y follows x.
var throttlePairs = [NumThrottlePairs]struct {
	x, y            ThrottleSensor
	disagree, stuck ThrottleRule
	free            float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
