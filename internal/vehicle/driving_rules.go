package vehicle

import "time"

// DrivingRules is the version of the driving rules.
const DrivingRules = 6

// rules are the thresholds of the driving verdict.
type rules struct {
	// jam and slow are the borders between the driving states, as values of the share. The share
	// is the travel time in light traffic, ordinary red lights included, divided by the present
	// travel time. A share of at most jam is a traffic jam. A share above jam, but at most slow,
	// is slow driving.
	jam, slow float32
	// clear and hold are the hysteresis of the verdict. During the time hold after a change, the
	// verdict changes again only if the share is beyond a border by the factor clear.
	clear float32
	hold  time.Duration
	// others is the weight of the delay that other cars show on the way behind the car, if they
	// show it on all of that way. The delay from the car's own speed has the rest of the weight.
	others float32

	// The car's own mean speed is exponentially decayed with the time constant meanDecay. While the
	// car is slower than crawl, in km/h, it makes a stop: it is stationary, at walking pace or
	// manoeuvring. The mean includes only the first stopCounts seconds of a stop, and its seconds
	// after longStop. The first moveUp metres after a stop still belong to the stop.
	crawl, stopCounts, longStop, moveUp float32
	meanDecay                           time.Duration

	// If neither the road nor the source gives the free flow, it is estimated from the car's mean
	// speed while it drove faster than fluent, a mean that decays with cruiseDecay. The estimate
	// is perCruise times that mean, but at least street and at most mostAssumed. All speeds are in
	// km/h.
	fluent, perCruise, street, mostAssumed float32
	cruiseDecay                            time.Duration
	// leastFree and mostFree limit, in km/h, the free flow that a source sends.
	leastFree, mostFree float32

	// A drive begins as normal. The car's own speeds change that only when their mean covers a
	// time of at least settle, or of at least leave if the car has not yet been faster than
	// fluent. In the first firstMinute of the drive, the car's own speeds never make a jam.
	settle, leave, firstMinute time.Duration
}

// The borders of the states, as shares of the speed in light traffic. They correspond to travel
// times of 2.5 and 1.5 times that in light traffic. The rules, the simulator and the evaluation
// have this definition in common; docs/verdicts.md compares it with those of the Highway Capacity
// Manual, DATEX II and the travel-time index.
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

// StateOfShare returns the driving state for a share of the speed in light traffic.
func StateOfShare(share float32) DrivingState { return standardRules.state(share) }

// standardRules are the thresholds in force. They were chosen with both simulated roads of
// docs/verdicts.md in view (Bologna and a motorway, simulated with Eclipse SUMO), so the figures
// there are figures of fit, with no held-out set. A cross-validation estimates by how much these
// figures are too good: from 69 random draws of ten thresholds, it took the best draw for one road
// and scored it on the other. On recorded drives (the data set tds of docs/verdicts.md) none of 511
// random draws reached the macro-F1 of 0.50 that was wanted.
var standardRules = rules{
	jam: JamShare, slow: SlowShare,
	// On the simulated roads, half of the changes of the true state follow the previous change
	// within a minute. If a verdict could not change again within a minute, it would be wrong for
	// the rest of that minute.
	clear: 1.03, hold: time.Minute,
	others: 0.8,

	// Walking pace. Most parking manoeuvres stay below it.
	crawl: 4,
	// A stop at a red light tells little about traffic, and a longer stop there tells no more. But
	// a traffic light completes its cycle in two minutes or less, and parking takes no longer
	// either. So a longer stop has another cause, and its time beyond two minutes counts again.
	stopCounts: 30, longStop: 120,
	// Parking takes a few moves of one or two car lengths each.
	moveUp:    12,
	meanDecay: time.Minute,

	// Because of traffic lights and crossings, the mean speed in a street is about a quarter lower
	// than the speed between them. A street with a limit of 50 km/h allows a mean of about 33
	// km/h. Mean speeds in jams on a motorway are below 33 km/h.
	fluent: 27, perCruise: 0.75, street: 33, mostAssumed: 82,
	// After some minutes at city speeds, the mean has little left of an earlier speed on a
	// motorway.
	cruiseDecay: 4 * time.Minute,
	// A road with a lower free flow than leastFree is a yard rather than a street, and nobody
	// averages more than 130 km/h.
	leastFree: 10, mostFree: 130,

	// Leaving a car park takes a minute or two at 8 to 12 km/h. "The first minute of a
	// drive is never a jam" is a requirement.
	settle: 25 * time.Second, leave: 80 * time.Second, firstMinute: time.Minute,
}

// Times and speeds used by all driving rules. Speeds are in km/h.
const (
	// maxStep is the longest time between two speed readings for which the speed between them is
	// interpolated. A longer gap says nothing about traffic. Cars report once a minute or more
	// often; 75 s allow for a late report.
	maxStep = 75 * time.Second
	// newDrive is the silence after which earlier speeds say nothing about the present
	// traffic.
	newDrive = 10 * time.Minute
	// rampKmhPerSecond is the assumed acceleration of a car that stops or sets off: 1 m/s²,
	// which drivers exceed at a light. If the time between two readings is longer than the
	// car needs at this acceleration, the car was stationary for the rest of the time.
	rampKmhPerSecond = 3.6
	// freeFlowHolds is how long a free-flow speed that a source sent is valid: until the next one
	// is due. By then the car may have left the road that the speed describes.
	freeFlowHolds = maxStep
	// moving is the speed above which a car is certainly driving.
	moving = 3
	// A car slower than stationaryBelow is taken to be stationary. A car faster than drivingFrom
	// is not being towed, and few start-stop systems stop the engine at such a speed.
	stationaryBelow, drivingFrom = 1, 20
	// restAfter is how long a car is stationary with its engine off before it is parked
	// rather than waiting. Start-stop systems stop the engine for minutes.
	restAfter = 5 * time.Minute
	// parkedAfter is how long a car is stationary before it is parked, if neither engine
	// nor ignition shows whether it waits. Few queues stay longer without moving up once.
	parkedAfter = 10 * time.Minute
	// closedAfter replaces parkedAfter for a car that came from a road where its mean speed was
	// at least motorway, because nobody parks there, and some motorways are closed for an hour.
	closedAfter = time.Hour
	motorway    = 80
	// ignitionHolds is how long an "ignition on" outweighs an engine at rest.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. If it moves later
	// than that, the ignition is on, and the message that reported this was lost.
	coasting = 30 * time.Second
)
