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
// The engine computer checks raw voltages every few milliseconds. The rules here see readings that
// are seconds apart, so they wait longer. The version increases with every change of what the rule
// finds.
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
// A comment such as "healthy drives reached 16.6 of 36" gives the greatest measure in 47 hours of
// healthy driving, and the measure that raises an alarm. No threshold was found by search: each is
// a round number near twice what healthy drives reached. A cross-validation, by halves of the files
// and by kinds of car, shows how many drives of one part are anomalous if each threshold is 1.8
// times what the other part reached. docs/verdicts.md has the results; TestMargins of
// internal/lab/faults prints them.
const (
	// How to compare readings of two sensors that were not read at the same time.

	// bracketWithin is the longest time between two readings over which a sensor's position is
	// taken as known, because loggers read a sensor every 0.1 to 2 s, and a foot needs less than a
	// second. After a longer silence, only readings with one time stamp are compared. When this
	// threshold was 5 s, 23 of 94 healthy drives, thinned out to a reading in 3 or 4 s, had a
	// false anomaly.
	bracketWithin = 2.5
	// bucketMillis is the least time that a sensor's range spans, in milliseconds. Loggers give a
	// whole row one time stamp, although its sensors were not read at the same moment.
	bucketMillis = 500
	// most is the longest time that one comparison may cover, in seconds, because nothing is known
	// of a longer gap. aloneMost is the same limit for readings with no others near them, whose
	// time stamps may be seconds off.
	most, aloneMost = 2.0, 1.0

	// How to tell a reading from a repetition of an old one. After the other sensor of a pair has
	// moved by movesBy, a sensor's unchanged value is taken for a repetition during one and a half
	// times the time that the sensor took to follow earlier (its lag), plus lagSpare. The sensor
	// has followed if it moved by followsBy and agrees with the other. Lags are in hundredths of a
	// second; lags below lagLeast or above lagMost are ignored.
	movesBy, followsBy = 2.0, 1.5
	lagLeast, lagMost  = 5, 2500
	lagSpare           = 50

	// How the relation of two sensors is learned.

	// settledWithin is a limit to movement. A pair is learned from only while neither of its
	// sensors moves by more than that.
	settledWithin = 2.0
	// matureAfter is how long the sensors of a pair must have been settled before they are
	// compared. Until they have been settled for trustedAfter, they may deviate by twice the
	// allowance and still be learned from.
	matureAfter, trustedAfter = 12.0, 30.0
	// memory is the greatest total weight of what was learned. At a new drive the weight is
	// reduced to driveMemory.
	memory, driveMemory = 300.0, 20.0
	// slopePrior is the weight, in percent² × seconds, of the assumption that y moves as much as
	// x. While nothing more is known, the slope may be off by slopeDoubt. Pairs at half the slope
	// and pairs that run in opposite directions are learned. No real pair has a slope below
	// slopeLeast.
	slopePrior, slopeDoubt, slopeLeast = 50.0, 2.0, 0.3
	// leverage limits, also in percent² × seconds, what one comparison adds to what is known of
	// the slope, because a chance agreement far from rest must not decide it.
	leverage = 60.0
	// A sensor above saturated, or below 100 - saturated, may be at the end of its range. On one
	// car throttle B stays at 99.2 while A continues from 67 to 78.
	saturated = 97.0

	// Redundant sensors, plate and command: the measure is the sum, over time, of the sensors'
	// distance beyond the allowance of the pair. At most disagreementMost percent of a distance
	// are added; disagreementAlarm is in percent × seconds. Healthy drives reached 16.6 of 36.
	disagreementMost, disagreementAlarm = 12.0, 36.0
	sensorsFree                         = 3.0
	commandFree                         = 2.0
	// aloneFree is the allowance for readings whose time stamps may be seconds off, as those of a
	// gateway that sends its last readings every minute.
	aloneFree = 6.0

	// Stuck sensor: the sensor keeps its value within stuckWithin for stuckAlarm, and in that time
	// the other sensor of the pair was surely at two positions that are stuckRange apart
	// (stuckRangeAtEnd if the sensor may be at the end of its range). Its position is sure if it
	// was read before and after a reading of the sensor, and these two readings are at most
	// sureWithin apart and, if both sensors have the same time stamp, at least sureFrom.
	// Otherwise three readings are needed. Healthy drives reached 1 of 5.
	sureWithin, sureFrom                = 2.1, 1.2
	stuckRangeAtEnd                     = 30.0
	stuckWithin, stuckRange, stuckAlarm = 1.0, 8.0, 5.0

	// Noise of one sensor of a pair: the measure is the sum of its steps, each at most noiseMost
	// (one wrong reading is two steps, which raise no alarm), less noiseFree and less the movement
	// that the other sensor's range explains. The sum decays with noiseDecay. Healthy drives
	// reached 19.2 of 40.
	noiseMost, noiseFree, noiseDecay, noiseAlarm = 12.0, 3.0, 20.0, 40.0

	// Noise without a partner: the measure is the sum of steps, each at most travelMost, which
	// decays with travelDecay. An alarm is raised if that sum exceeds the same sum of engine load
	// by loadTravelAlarm (healthy drives reached 26 of 60). Without engine load, it is raised if
	// the sum exceeds that of the pedal by followTravelAlarm if the plate follows the pedal (22 of
	// 60), or by pedalTravelAlarm if the plate also moves by itself (109 of 200). An alarm is
	// always raised if the sum reaches travelAlarm, which is more than any foot moves (203 of
	// 450).
	travelMost, travelDecay = 10.0, 30.0
	loadTravelAlarm         = 60.0
	followTravelAlarm       = 60.0
	pedalTravelAlarm        = 200.0
	travelAlarm             = 450.0

	// Electrical limit: the values 0 and 255 of J1979, with a margin for rounding. The measure is
	// how long a sensor reads one of them. A pedal whose scale begins at 0 also reads 0. A
	// grounded wire differs from that, because its sensor was seen elsewhere first, at rest and in
	// motion, for plateSeen, or for pedalSeen if it is a pedal's. A throttle that is wide open may
	// reach 100 under load. So when engine load is above fullLoad, that value is no sign of a
	// fault. Healthy drives reached 0.
	lowLimit, highLimit           = 0.4, 99.8
	lowLimitAlarm, highLimitAlarm = 3.0, 5.0
	plateSeen, pedalSeen          = 20.0, 60.0
	fullLoad                      = 75.0

	// Plate and pedal (engine load if the car reports no pedal), each read within bracketWithin. A
	// demand is a rise of the pedal by pedalRise that lasts pedalLasts, or of the load by loadRise
	// that lasts loadLasts. The plate has followed a demand if it moved by more than plateMoves;
	// otherwise it has ignored the demand. The rule applies only to a car whose plate is known to
	// follow: it has followed followsAfter demands, and has ignored at most one for every
	// ignoredShare that it followed. It was also seen without a demand (a load up to loadRests
	// above the lowest is none) for restsFor, always below restsClosedBelow. The last condition
	// excludes a diesel, whose plate rests open (83.5 % on one) whatever the pedal does. An alarm
	// is raised when such a plate ignores missedAlarm demands in a row. Healthy drives reached 1
	// of these 3.
	pedalRise, pedalLasts      = 6.0, 4.0
	loadRise, loadLasts        = 20.0, 3.0
	missedAlarm                = 3.0
	plateMoves                 = 1.5
	followsAfter, ignoredShare = 8, 8
	restsClosedBelow           = 50.0
	restsFor, loadRests        = 20.0, 12.0

	// engineHolds is how long a reading of engine speed 0 means that nothing drives the plate.
	// During that time the limits, the command and the pedal are not checked. Loggers read the
	// engine speed at least once in that time.
	engineHolds = 10 * time.Second

	// Recovery: the verdict is normal again when the rule has had readings for calmFor that
	// measure less than half of what raises the alarm. An anomaly whose sensors are no longer
	// reported is dropped after newDrive of driving. An anomaly that has outlasted forgetDrives
	// drives probably shows that the readings come from another car or other sensors, so
	// everything is learned again from the beginning.
	calmFor      = 60.0
	forgetDrives = 3
	// codeGoneFor is the corresponding time for a trouble code. The anomaly ends when no list has
	// held a throttle code for that time. A code needs no debounce, because the car debounces it.
	codeGoneFor = calmFor * time.Second
)

// NumThrottlePairs is the number of pairs of sensors that should agree.
const NumThrottlePairs = 3

// throttlePairs are the pairs of sensors that should agree, in the sense that y follows x.
var throttlePairs = [NumThrottlePairs]struct {
	x, y            ThrottleSensor
	disagree, stuck ThrottleRule
	free            float32
}{
	{PlateA, PlateB, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{PedalD, PedalE, RuleRedundantSensors, RuleStuckSensor, sensorsFree},
	{Command, PlateA, RulePlateCommand, RulePlateCommand, commandFree},
}
