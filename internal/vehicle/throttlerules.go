package vehicle

import "time"

// ThrottleRule is a reason for which a throttle system is judged anomalous.
type ThrottleRule uint8

// The rules. Their numbers are stored in states: new ones go to the end.
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

// throttleRules names each rule and says where it comes from: the monitor of the
// engine's own computer whose question it asks again from outside, by the codes
// of SAE J2012 that the monitor sets. Those monitors run every few milliseconds on
// raw voltages; ours see readings seconds apart, so they wait longer. The version
// rises with every change of what the rule finds.
var throttleRules = [numThrottleRules]struct {
	name    string
	version int
	source  string
	text    string
}{
	NoThrottleRule: {"throttle/none", 1, "",
		"normal: every measure is within its limit"},
	RuleTroubleCode: {"throttle/trouble-code", 2, "SAE J2012 families P0120–P0124, P0220–P0229, P0638, P0639, P2100–P2140, P2172–P2176",
		"the car reports a trouble code of its throttle or pedal"},
	RuleRedundantSensors: {"throttle/redundant-sensors", 2, "voltage correlation: P2135 (throttle A/B), P2138 (pedal D/E)",
		"two sensors of one position no longer agree as they did on this car"},
	RulePlateCommand: {"throttle/plate-command", 3, "throttle actuator range/performance and stuck plate: P2101, P0638, P2111, P2112",
		"the plate does not stand where it is commanded to"},
	RulePlatePedal: {"throttle/plate-pedal", 3, "throttle position rationality: P0121, P0068, P2119",
		"the plate no longer moves when it is asked to, as it did on this car"},
	RuleStuckSensor: {"throttle/stuck-sensor", 2, "sensor range/performance: P0121, P0221, P2121, P2126",
		"a sensor stands still while its partner moves"},
	RuleElectricalLimit: {"throttle/electrical-limit", 2, "circuit low and high: P0122, P0123, P0222, P0223, P2122, P2123, P2127, P2128",
		"a sensor is at the end of its electrical range, where this car's does not rest"},
	RuleNoise: {"throttle/noise", 2, "circuit intermittent: P0124, P0224, P2124, P2129",
		"a sensor moves where no plate or pedal does"},
}

// String returns the rule's name.
func (r ThrottleRule) String() string { return throttleRules[min(r, numThrottleRules-1)].name }

// Thresholds of the throttle rules. Positions are in percent of the sensor's
// range, as PIDs $11, $47, $49, $4A and $4C of SAE J1979 give them (one byte: steps
// of 0.4), durations in seconds. "Healthy" is the most that 47 hours of healthy
// driving reached (docs/verdicts.md has the table and the command).
const (
	// How readings of two sensors are compared that were not read at once.

	// bracketWithin is the longest time between two readings in which a sensor's
	// position is taken as known: loggers read a sensor every 0.1 to 2 s, and a
	// foot needs less than a second. After a longer silence only readings of one
	// time are compared. Healthy drives thinned out to a reading in 3 or 4 s gave
	// 23 false anomalies in 94 drives when this was 5.
	bracketWithin = 2.5
	// bucketMillis is the least time that a sensor's range spans: loggers stamp
	// a whole row at once, though its sensors were not read at once.
	bucketMillis = 500
	// most is the longest time that one comparison stands for: a gap is not
	// evidence. aloneMost is the same for readings with none near them, whose
	// stamps may hide seconds.
	most, aloneMost = 2.0, 1.0

	// How a reading is told from the repetition of an old one: a partner has moved by
	// movesBy, and the sensor has not changed for no longer than it took to follow
	// before, and half of that, and lagSpare. It followed if it moved by followsBy and
	// agrees. In hundredths of a second, lags below lagLeast and over lagMost are none.
	movesBy, followsBy = 2.0, 1.5
	lagLeast, lagMost  = 5, 2500
	lagSpare           = 50

	// How the relation of two sensors is learned.

	// settledWithin is how little both must move to be learned from.
	settledWithin = 2.0
	// matureAfter is how long they must have been seen so before they are judged;
	// until trustedAfter, what is learned from may deviate twice as much.
	matureAfter, trustedAfter = 12.0, 30.0
	// memory is the weight of the past; a new drive brings a fresh driveMemory.
	memory, driveMemory = 300.0, 20.0
	// slopePrior is the weight, in percent² × seconds, of the guess that y moves
	// as x does; while no more is known, the slope may be off by slopeDoubt.
	// Pairs at half the slope, or running against each other, are learned; no
	// pair is built with less than slopeLeast.
	slopePrior, slopeDoubt, slopeLeast = 50.0, 2.0, 0.3
	// leverage bounds, in the same unit, what one comparison tells of the slope: a
	// chance agreement far from rest must not decide it.
	leverage = 60.0
	// A sensor above saturated (or below its mirror) may be cut off: one car's
	// throttle B stays at 99.2 while A goes on from 67 to 78.
	saturated = 97.0

	// Redundant sensors, plate and command: how far apart, beyond what is free for
	// each pair, for how long (apartAlarm is in percent × seconds; at most apartMost
	// percent count). Healthy: 16.6 of 36.
	apartMost, apartAlarm = 12.0, 36.0
	sensorsFree           = 3.0
	commandFree           = 2.0
	// aloneFree is what is free where stamps may hide seconds, as they do in a
	// gateway that sends its last readings every minute.
	aloneFree = 6.0

	// Stuck sensor: it keeps its value within stillWithin, read while its partner
	// was surely in two places stillRange apart (stillRangeAtEnd where it may be
	// cut off), for stillAlarm. Surely: at two readings in a row, one before and one
	// after, if they are within sureWithin (and sureFrom apart, where both sensors
	// carry one stamp), else at three.
	// Healthy: 1 of 5.
	sureWithin, sureFrom                = 2.1, 1.2
	stillRangeAtEnd                     = 30.0
	stillWithin, stillRange, stillAlarm = 1.0, 8.0, 5.0

	// Noise beside a partner: steps of at most roughMost (a single wrong reading is
	// two steps, and no alarm), less roughFree and what the partner's range
	// explains, fading with roughDecay. Healthy: 19.2 of 40.
	roughMost, roughFree, roughDecay, roughAlarm = 12.0, 3.0, 20.0, 40.0

	// Noise without a partner: steps of at most travelMost, fading with
	// travelDecay, beyond what engine load explains (healthy 26 of 60), or the pedal
	// (healthy 22 of 60 where the plate follows it, 109 of 200 where it has a life of
	// its own), or any foot at all (healthy 203 of 450).
	travelMost, travelDecay = 10.0, 30.0
	loadTravelAlarm         = 60.0
	followTravelAlarm       = 60.0
	pedalTravelAlarm        = 200.0
	travelAlarm             = 450.0

	// Electrical limit: J1979's 0 and 255, but for rounding. A grounded wire is
	// told from a pedal whose scale begins at 0 by having been seen elsewhere
	// first: at rest and in motion, a minute for a pedal. Wide open throttle
	// may reach 100 under load: not evidence above fullLoad. Healthy: 0.
	lowLimit, highLimit           = 0.4, 99.8
	lowLimitAlarm, highLimitAlarm = 3.0, 5.0
	plateSeen, pedalSeen          = 20.0, 60.0
	fullLoad                      = 75.0

	// Plate and pedal (engine load where the car reports no pedal), each read within
	// bracketWithin: a demand is a rise that lasts. The plate has followed if it moved by
	// plateMoves. It must have done so followsAfter times, with at most one in
	// ignoredShare ignored, and never have rested open, seen at rest for restsFor: a
	// diesel's rests open (83.5 % on one) whatever the pedal does. Then missedAlarm
	// demands in a row must be ignored. Healthy: 1 of 3.
	pedalRise, pedalLasts      = 6.0, 4.0
	loadRise, loadLasts        = 20.0, 3.0
	missedAlarm                = 3.0
	plateMoves                 = 1.5
	followsAfter, ignoredShare = 8, 8
	restsClosedBelow           = 50.0
	restsFor, loadRests        = 20.0, 12.0

	// engineHolds is how long a reading of engine speed 0 says that nothing drives
	// the plate: then the limits, the command and the pedal are not looked at.
	// Loggers read the engine speed at least that often.
	engineHolds = 10 * time.Second

	// Recovery: normal again after the rule has looked for calmFor without finding
	// half of what it takes. An anomaly whose sensors report no more is dropped after
	// newDrive of driving. One that has outlasted forgetDrives drives belongs to
	// another car or other sensors: everything is learned anew.
	calmFor      = 60.0
	forgetDrives = 3
	// codeGoneFor is the same for a trouble code: a list without it, and none with one
	// for so long. A code needs no debounce, it has the car's own.
	codeGoneFor = calmFor * time.Second
)

// NumThrottlePairs is the number of pairs of sensors that should agree.
const NumThrottlePairs = 3

// throttlePairs are the sensors that should agree: y follows x.
var throttlePairs = [NumThrottlePairs]struct {
	x, y         ThrottleSensor
	apart, still ThrottleRule
	free         float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
