package vehicle

import "time"

// DrivingRules is the version of the driving rules.
const DrivingRules = 6

// rules are the thresholds of the driving verdict.
type rules struct {
	// jam and slow are the borders of the states. The measure is the share: the travel time
	// in light traffic, ordinary red lights included, divided by the present travel time.
	// At or below jam it is a traffic jam, at or below slow it is slow driving.
	jam, slow float32
	// clear and hold are the hysteresis of the verdict. For hold after a change, the share
	// must be beyond a border by the factor clear to change the verdict again.
	clear float32
	hold  time.Duration
	// others is the weight of the delay that other cars show behind the car, if they show
	// all of its way. The car's own speed has the rest.
	others float32

	// The car's own mean speed is exponentially decayed with the time constant meanDecay.
	// Below crawl, in km/h, a car is stationary, walks or manoeuvres. Of such a stop the
	// mean includes the first stopCounts seconds and those after longStop seconds. The
	// first moveUp metres after a stop are still part of it.
	crawl, stopCounts, longStop, moveUp float32
	meanDecay                           time.Duration

	// If neither the road nor the source gives the free flow, it is estimated as perCruise
	// times the car's mean speed while above fluent, which decays with cruiseDecay. The
	// estimate is at least street and at most mostAssumed. All speeds are in km/h.
	fluent, perCruise, street, mostAssumed float32
	cruiseDecay                            time.Duration
	// leastFree and mostFree limit, in km/h, the free flow that a source sends.
	leastFree, mostFree float32

	// A drive begins as normal. The car's own speeds change that only when the mean
	// includes settle of them, or leave if the car has not yet been above fluent. They make
	// no jam in the first firstMinute of the drive.
	settle, leave, firstMinute time.Duration
}

// The borders of the states, as shares of the speed in light traffic: travel times of 2.5
// and 1.5 times the free one. They are the definition that the rules, the simulator and the
// evaluation have in common; docs/verdicts.md compares them with those of the Highway
// Capacity Manual, DATEX II and the travel-time index.
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

// StateOfShare returns the driving state for a share of the speed in light traffic.
func StateOfShare(share float32) DrivingState { return standardRules.state(share) }

// standardRules are the thresholds in force. They were chosen with both simulated roads of
// docs/verdicts.md in view (Bologna and a motorway, simulated with Eclipse SUMO), so the
// figures there are figures of fit, with no held-out set. A cross-validation estimates how
// much that flatters: of 69 random draws of ten thresholds, the best draw for one road was
// scored on the other. On the recorded drives (tds) none of 511 random draws reached the
// macro-F1 of 0.50 that was wanted.
var standardRules = rules{
	jam: JamShare, slow: SlowShare,
	// On the simulated roads, traffic itself changes its state within a minute every other
	// time. A verdict that cannot change again within a minute would be wrong for as long.
	clear: 1.03, hold: time.Minute,
	others: 0.8,

	// Walking pace. Most parking manoeuvres stay below it.
	crawl: 4,
	// A red light tells little, and a longer one tells no more. But traffic lights complete
	// their cycle in two minutes or less, and nobody needs longer to park.
	stopCounts: 30, longStop: 120,
	// Parking takes a few moves of one or two car lengths each.
	moveUp:    12,
	meanDecay: time.Minute,

	// Lights and crossings cost a street about a quarter of the speed at which cars drive
	// between them. A street with a limit of 50 km/h allows about 33 km/h. Jams on a
	// motorway are below 33 km/h.
	fluent: 27, perCruise: 0.75, street: 33, mostAssumed: 82,
	// After some minutes at city speeds, little of a motorway's speed remains in the mean.
	cruiseDecay: 4 * time.Minute,
	// A slower street is a yard. Nobody averages more than 130 km/h.
	leastFree: 10, mostFree: 130,

	// Leaving a car park takes a minute or two at 8 to 12 km/h. "The first minute of a
	// drive is never a jam" is a requirement.
	settle: 25 * time.Second, leave: 80 * time.Second, firstMinute: time.Minute,
}

// Times and speeds used by all driving rules. Speeds are in km/h.
const (
	// maxStep is the longest time between two speeds in which the car is taken to have
	// driven from the one to the other. A longer gap is no evidence of anything. Cars
	// report once a minute or more often; 75 s allow for a late report.
	maxStep = 75 * time.Second
	// newDrive is the silence after which earlier speeds say nothing about the present
	// traffic.
	newDrive = 10 * time.Minute
	// rampKmhPerSecond is the assumed acceleration of a car that stops or sets off: 1 m/s²,
	// which drivers exceed at a light. If a step between two readings is longer than that
	// takes, the car was stationary for the rest.
	rampKmhPerSecond = 3.6
	// freeFlowHolds is how long a sent free-flow speed is valid: until the next one is due
	// and no longer, because the car may have left the road that it describes.
	freeFlowHolds = maxStep
	// moving is the speed above which a car is certainly driving.
	moving = 3
	// A car below stationaryBelow is taken to be stationary. At drivingFrom and above, no car is being
	// towed, and few cars have a start-stop system that stops the engine.
	stationaryBelow, drivingFrom = 1, 20
	// restAfter is how long a car is stationary with its engine off before it is parked
	// rather than waiting. Start-stop systems stop the engine for minutes.
	restAfter = 5 * time.Minute
	// parkedAfter is how long a car is stationary before it is parked, if neither engine
	// nor ignition tells. Few queues stay longer without moving up once.
	parkedAfter = 10 * time.Minute
	// closedAfter replaces parkedAfter for a car that came from a road where it cruised at
	// motorway or faster: nobody parks there, and some motorways are closed for an hour.
	closedAfter = time.Hour
	motorway    = 80
	// ignitionHolds is how long an "ignition on" outweighs an engine at rest.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. If it moves later
	// than that, the ignition is on and the message that said so was lost.
	coasting = 30 * time.Second
)
