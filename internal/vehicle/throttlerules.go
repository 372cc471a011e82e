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

// throttleRules gives each rule its name, version, source and text. The source is the check in the
// car's own engine computer that finds the same fault, named by the SAE J2012 codes that it sets.
// The engine computer checks raw voltages every few milliseconds. The rules here receive readings
// that are seconds apart, so they wait longer before they raise an alarm. The version of a rule
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

// Thresholds of the throttle rules. Positions are in percent of the sensor's range, as PIDs $11,
// $47, $49, $4A and $4C of SAE J1979 give them (one byte, so steps of 0.4). Durations are in
// seconds.
//
// A comment such as "healthy drives reached 16.6, the alarm is at 36" gives the greatest measure in
// 47 hours of healthy driving, and the measure that raises an alarm. No threshold was found by
// search: each is a round number, about twice the greatest measure of healthy drives. A
// cross-validation divides these drives into parts: once into two halves, once by kind of car. It
// sets each threshold to 1.8 times the greatest measure in the other parts, and counts the drives
// of a part that would be anomalous. docs/verdicts.md has the results; TestMargins of
// internal/lab/faults prints them.
const (
	// How to compare readings of two sensors that were not read at the same time.

	// bracketWithin is the longest time, in seconds, between two readings of a sensor during which
	// its position is taken to be between the two values. Loggers read a sensor every 0.1 to 2 s,
	// and a foot moves a pedal in less than a second. After a longer silence, only readings with
	// one time stamp are compared. A longer bracketWithin would raise false alarms: with 5 s, in a
	// test that thinned 94 healthy drives to one reading in 3 or 4 s, 23 of them had a false
	// anomaly.
	bracketWithin = 2.5
	// bucketMillis is the least length, in milliseconds, of a period over which the lowest and
	// highest reading of a sensor are kept. A sensor is compared by this range, because loggers
	// give a whole row one time stamp, although its sensors were not read at the same moment.
	bucketMillis = 500
	// most is the maximum time, in seconds, that one comparison or reading adds to a measure,
	// because nothing is known of a longer gap. aloneMost is the maximum for a reading with no
	// other reading of its sensor within bracketWithin, because its time stamp may be seconds off.
	most, aloneMost = 2.0, 1.0

	// These thresholds tell a new reading from a repetition of an old one. When the other sensor of
	// its pair has moved by movesBy percent, a sensor's unchanged value is taken for a repetition
	// for a limited time: one and a half times the sensor's lag, plus lagSpare. The lag is learned:
	// it is the time from an earlier movement of the other sensor until this sensor had moved by
	// followsBy percent and agreed with the other. Lags are in hundredths of a second; lags below
	// lagLeast or above lagMost are ignored.
	movesBy, followsBy = 2.0, 1.5
	lagLeast, lagMost  = 5, 2500
	lagSpare           = 50

	// How the relation of two sensors is learned.

	// A sensor is settled if its recent readings differ by at most settledWithin percent. The
	// relation of a pair is learned only while both of its sensors are settled.
	settledWithin = 2.0
	// matureAfter is how long, in seconds, both sensors of a pair must have been settled (almost
	// stationary) before they are compared. Until they have been settled for trustedAfter seconds,
	// their relation is also learned from readings that disagree by up to twice the normal
	// difference (sensorsFree or commandFree).
	matureAfter, trustedAfter = 12.0, 30.0
	// memory is the greatest total weight, in seconds, of the readings from which the relation of a
	// pair was learned. When a new drive begins, the weight is reduced to at most driveMemory.
	memory, driveMemory = 300.0, 20.0
	// slopePrior is the weight, in percent² × seconds, of the assumption that y moves as much as x
	// (the slope 1). While nothing else is known, the slope may be off by slopeDoubt, so a pair
	// with half the slope, or with sensors that run in opposite directions, can be learned too. No
	// real pair has a slope below slopeLeast.
	slopePrior, slopeDoubt, slopeLeast = 50.0, 2.0, 0.3
	// leverage limits how much one comparison adds to what is known of the slope, in percent² ×
	// seconds. Without it, one chance agreement far from the usual positions would decide the
	// slope.
	leverage = 60.0
	// A sensor above saturated percent, or below 100 - saturated, may be at the end of its range.
	// On one car, throttle sensor B stays at 99.2 % while sensor A moves from 67 to 78 %.
	saturated = 97.0

	// For the rules on redundant sensors and on plate and command, the measure is the sum, over
	// time, of the distance between the sensors beyond their allowance. The allowance, in percent,
	// is sensorsFree for two sensors of one position, and commandFree for the plate and its
	// command. At most disagreementMost percent of a distance are added; disagreementAlarm is in
	// percent × seconds. Healthy drives reached 16.6, the alarm is at 36.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree                         = 3.0
	commandFree                         = 2.0
	// aloneFree replaces sensorsFree and commandFree if there is no other reading within 2.5 s
	// before, because the time stamps may then be seconds off. An example are the readings of a
	// gateway that sends only the last reading of each sensor, every minute.
	aloneFree = 6.0

	// For a stuck sensor, the measure is how long it keeps its value within stuckWithin percent
	// although the other sensor of the pair was surely at two positions more than stuckRange
	// percent apart (stuckRangeAtEnd if the first sensor may be at the end of its range). An alarm
	// is raised at stuckAlarm seconds. The other sensor's position is sure if the reading of the
	// first sensor lies between two readings of the other, one before and one after. These two must
	// be at most sureWithin seconds apart and, if both sensors have the same time stamp, at least
	// sureFrom. Otherwise the position is taken to lie between the extremes of three readings.
	// Healthy drives reached 1, the alarm is at 5.
	sureWithin, sureFrom                = 2.1, 1.2
	stuckRangeAtEnd                     = 30.0
	stuckWithin, stuckRange, stuckAlarm = 1.0, 8.0, 5.0

	// For the noise of one sensor of a pair, the measure is the sum of its steps, the differences
	// between two readings, in percent. Each step adds at most noiseMost, less noiseFree and less
	// the movement of the other sensor. One wrong reading makes two steps, which are too few for an
	// alarm. The sum decays with the time constant noiseDecay, in seconds. Healthy drives reached
	// 19.2, the alarm is at 40.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// For noise without a partner, the measure is the sum of a sensor's steps, each at most
	// travelMost. It decays with the time constant travelDecay. The sum of the throttle plate is
	// compared with the same sum of engine load, and may exceed it by less than loadTravelAlarm
	// (healthy drives reached 26, the alarm is at 60). Without engine load, the plate's sum is
	// compared with that of the pedal. It may exceed the pedal's by less than followTravelAlarm if
	// the plate is known to follow the pedal (22, alarm at 60), and otherwise by less than
	// pedalTravelAlarm (109, alarm at 200). Any sensor raises an alarm if its sum reaches
	// travelAlarm, which is more than any foot moves (203, alarm at 450).
	travelMost, travelDecay = 10.0, 30.0
	loadTravelAlarm         = 60.0
	followTravelAlarm       = 60.0
	pedalTravelAlarm        = 200.0
	travelAlarm             = 450.0

	// For the electrical limit, the measure is how long a sensor reads 0 or 100 %, the values 0 and
	// 255 of J1979, with a margin for rounding. An alarm is raised at lowLimitAlarm or
	// highLimitAlarm seconds. But the sensor must have been seen between these values before, for
	// plateSeen seconds, or for pedalSeen if it is a pedal's. So a grounded wire is found, but a
	// pedal whose scale begins at 0 raises no alarm. A throttle that is wide open may read 100 %
	// under load. So 100 % is no sign of a fault while engine load is at least fullLoad percent.
	// Healthy drives reached 0.
	lowLimit, highLimit           = 0.4, 99.8
	lowLimitAlarm, highLimitAlarm = 3.0, 5.0
	plateSeen, pedalSeen          = 20.0, 60.0
	fullLoad                      = 75.0

	// For plate and pedal, a demand is a rise of the pedal by pedalRise percent that lasts
	// pedalLasts seconds. If the car reports no pedal, it is a rise of engine load by loadRise that
	// lasts loadLasts. The plate follows a demand if it moves by more than plateMoves percent;
	// otherwise it ignores the demand. Plate and demand must each have been read within
	// bracketWithin. An alarm is raised when a plate that is known to follow ignores missedAlarm
	// demands in a row. Healthy drives reached 1, the alarm is at 3.
	//
	// A plate is known to follow if it has followed at least followsAfter demands, and at least
	// ignoredShare for each one that it ignored. It must also have been seen for restsFor seconds
	// without a demand, always below restsClosedBelow percent. (A load up to loadRests above the
	// lowest is no demand.) This excludes a diesel, whose plate rests open (83.5 % on one) whatever
	// the pedal does.
	pedalRise, pedalLasts      = 6.0, 4.0
	loadRise, loadLasts        = 20.0, 3.0
	missedAlarm                = 3.0
	plateMoves                 = 1.5
	followsAfter, ignoredShare = 8, 8
	restsClosedBelow           = 50.0
	restsFor, loadRests        = 20.0, 12.0

	// engineHolds is how long, after a reading of engine speed 0, it is assumed that nothing moves
	// the throttle plate. During that time, electrical limits are not checked, and the plate is not
	// compared with the command or the pedal. Loggers read the engine speed at least once in that
	// time.
	engineHolds = 10 * time.Second

	// Recovery: an anomaly ends when its rule has had readings for calmFor that measure less than
	// half of what raises the alarm. An anomaly whose sensors are no longer reported is dropped
	// after newDrive of driving. An anomaly that has lasted for forgetDrives drives probably shows
	// that the readings come from another car or other sensors, so everything is learned again from
	// the beginning.
	calmFor      = 60.0
	forgetDrives = 3
	// codeGoneFor is how long the lists of trouble codes must have been without a throttle code
	// before the anomaly ends. A code needs no debounce, because the car debounces it.
	codeGoneFor = calmFor * time.Second
)

// NumThrottlePairs is the number of pairs of sensors that should agree.
const NumThrottlePairs = 3

// throttlePairs are the pairs of sensors that should agree: y should follow x, with a deviation of
// at most free percent.
var throttlePairs = [NumThrottlePairs]struct {
	x, y            ThrottleSensor
	disagree, stuck ThrottleRule
	free            float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
