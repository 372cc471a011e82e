package vehicle

import "time"

// DrivingRules is the version of the driving rules.
const DrivingRules = 6

// rules are the thresholds of the driving verdict.
type rules struct {
	// jam and slow are the borders between the driving states. They are values of the share: the
	// travel time in light traffic, ordinary red lights included, divided by the present travel
	// time. A share of at most jam is a traffic jam. A share above jam, but at most slow, is slow
	// driving.
	jam, slow float32
	// clear and hold keep the verdict from changing back and forth. The verdict changes when the
	// share (see jam) crosses the border between two states. But for the time hold after a change,
	// it changes again only if the share is beyond a border by the factor clear, such as 1.03.
	clear float32
	hold  time.Duration
	// others is the weight, from 0 to 1, of other cars in the delay on the stretches that the car
	// has just driven. That delay is a weighted mean of the delay of other cars there and of the
	// car's own delay. The weight is reduced if other cars show a delay on only a part of these
	// stretches.
	others float32

	// These thresholds define the car's own mean speed, an exponentially weighted mean with the
	// time constant meanDecay. A stop is a time in which the car is slower than crawl, in km/h: it
	// is stationary, at walking pace or manoeuvring. The first moveUp metres after that time still
	// belong to the stop. Of a stop, the mean includes the first stopCounts seconds and the time
	// after longStop seconds, but not the time between.
	crawl, stopCounts, longStop, moveUp float32
	meanDecay                           time.Duration

	// These thresholds are used to estimate the free flow if neither the road nor the source gives
	// it. The estimate is perCruise times the car's mean speed while it drove faster than fluent,
	// but at least street and at most mostAssumed. The mean is exponentially weighted with the time
	// constant cruiseDecay. All speeds are in km/h.
	fluent, perCruise, street, mostAssumed float32
	cruiseDecay                            time.Duration
	// A free flow that a source sends is limited to the range from leastFree to mostFree, in km/h.
	leastFree, mostFree float32

	// A drive begins as normal. The car's own mean speed changes that to slow or jam only if the
	// mean covers at least the time settle, or the time leave if the car has not yet been faster
	// than fluent. Until firstMinute has passed since the beginning of the drive, the mean never
	// makes a jam.
	settle, leave, firstMinute time.Duration
}

// JamShare and SlowShare are the borders of the driving states. The share is the speed of traffic
// divided by its speed in light traffic. A share of at most JamShare is a traffic jam, and a share
// above that, but at most SlowShare, is slow driving. At these two borders, the travel time is 2.5
// and 1.5 times that in light traffic. The rules, the simulator and the evaluation have this
// definition in common; docs/verdicts.md compares it with those of the Highway Capacity Manual,
// DATEX II and the travel-time index.
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

// StateOfShare returns the driving state of traffic that moves at a share of its speed in light
// traffic.
func StateOfShare(share float32) DrivingState { return standardRules.state(share) }

// standardRules are the thresholds in force. They were chosen by their results on the two simulated
// roads of docs/verdicts.md (Bologna and a motorway, simulated with Eclipse SUMO), so the results
// on other roads may be worse. A cross-validation estimates by how much: of 69 random sets of ten
// thresholds, the set that was best on one road was measured on the other road. On recorded drives
// (the data set tds of docs/verdicts.md), a macro-F1 of 0.50 was wanted, and none of 511 random
// sets reached it.
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
	// newDrive is the longest time between two readings of one drive. After a longer silence,
	// earlier speeds say nothing about the present traffic.
	newDrive = 10 * time.Minute
	// rampKmhPerSecond is the assumed acceleration of a car that stops or sets off: 1 m/s², which
	// drivers exceed at a light. If the time between two readings is longer than the car needs at
	// this acceleration, the car is taken to have been stationary for the rest of the time.
	rampKmhPerSecond = 3.6
	// freeFlowHolds is how long a free-flow speed that a source sent is valid. Later, the car may
	// have left the road that the speed describes. By then, the source should have sent another
	// one.
	freeFlowHolds = maxStep
	// moving is the speed, in km/h, above which a car is certainly driving.
	moving = 3
	// A car slower than stationaryBelow, in km/h, is taken to be stationary. If the engine is at
	// rest at a speed above drivingFrom, in km/h, the car is taken to be electric or a hybrid: such
	// a car is too fast to be towed, and few start-stop systems stop the engine at such a speed.
	stationaryBelow, drivingFrom = 1, 20
	// restAfter is how long a car must be stationary with its engine off to be taken as parked and
	// not as waiting. Start-stop systems stop the engine for minutes.
	restAfter = 5 * time.Minute
	// parkedAfter is how long a car must be stationary to be taken as parked, if neither engine nor
	// ignition shows whether it waits. Few queues last longer than that without moving up once.
	parkedAfter = 10 * time.Minute
	// closedAfter replaces parkedAfter for a car whose mean speed was at least motorway, in km/h,
	// before it stopped. Nobody parks on a motorway, and some motorways are closed for an hour.
	closedAfter = time.Hour
	motorway    = 80
	// ignitionHolds is how long after an "ignition on" a stationary car with its engine at rest is
	// not taken as parked.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. If it moves later
	// than that, the ignition is on, and the message that reported this was lost.
	coasting = 30 * time.Second
)
