package vehicle

import "time"

// DrivingRules is the version of the driving rules. It increases whenever the same readings may
// lead to another verdict.
const DrivingRules = 7

// JamShare and SlowShare are the borders of the driving states. The share is the speed of traffic
// divided by its speed in light traffic, or the travel time in light traffic, ordinary red lights
// included, divided by the present travel time. A share of at most JamShare is a traffic jam, and a
// share above JamShare, but at most SlowShare, is slow driving. At JamShare the travel time is 2.5
// times that in light traffic, and at SlowShare 1.5 times. The rules, the simulator and the
// evaluation share this definition; docs/verdicts.md compares it with those of the Highway Capacity
// Manual, DATEX II and the travel-time index.
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

// StateOfShare returns the driving state for a share (see [JamShare]).
func StateOfShare(share float32) DrivingState {
	switch {
	case share <= JamShare:
		return TrafficJam
	case share <= SlowShare:
		return SlowDriving
	}
	return NormalDriving
}

// The thresholds of the driving verdict. They were chosen by their results on two simulated roads
// (Bologna and a motorway, simulated with Eclipse SUMO). docs/verdicts.md compares these results
// with those on three roads that were held back. On recorded drives (the data set tds there), the
// aim was a macro-F1 (the mean of the F1 scores of the three states) of 0.50, and none of 511 random
// sets of thresholds reached it.
const (
	// The verdict changes when the share (see JamShare) crosses the border between two states. But
	// within the time hold after a change, the verdict changes again only if the share is beyond a
	// border by the factor clearBy. On the simulated roads, half of the changes of the true state
	// follow the previous change within a minute. If a verdict could not change again within a
	// minute, it would be wrong for the rest of that minute.
	clearBy, hold = 1.03, time.Minute
	// othersWeight is the weight, from 0 to 1, of other cars in the delay on the stretches that the
	// car has just driven. That delay is a weighted mean of the delay of other cars there and of
	// the car's own delay. The weight is reduced if other cars show a delay on only a part of these
	// stretches.
	othersWeight = 0.8

	// apart is the RoadAround.Apart from which the free flow of the road may be that of another
	// stream, so that the car's own is used if it is lower.
	apart = 0.5

	// These thresholds define the car's own mean speed, an exponentially weighted mean with the
	// time constant meanDecay. A stop is a time in which the car is slower than crawl, in km/h: the
	// car is stationary, at walking pace or manoeuvring; most parking manoeuvres stay below it. The
	// first moveUp metres that the car drives afterwards still belong to the stop, because parking
	// takes a few moves of one or two car lengths each.
	crawl, moveUp = 4, 12
	// The mean includes the first stopCounts seconds of a stop and the time after longStop seconds,
	// but not the time between these two. A stop at a red light shows little about traffic, however
	// long the light is red; so only its first 30 s are counted. But a traffic light completes its
	// cycle in two minutes or less, and parking takes no longer either. A stop of more than two
	// minutes therefore has another cause, and its time after two minutes is counted again.
	stopCounts, longStop = 30, 120
	meanDecay            = time.Minute
	// topHolds is how long a speed that the car reached shows that the road is free. It is the cycle
	// of a traffic light.
	topHolds = 2 * time.Minute

	// These thresholds are used to estimate the free flow if neither the road nor the source gives
	// it. The estimate is perCruise times the car's mean speed while it drove faster than fluent,
	// but at least street and at most mostAssumed. All speeds are in km/h. Because of traffic
	// lights and crossings, the mean speed in a street is about a quarter lower than the speed
	// between them. A street with a limit of 50 km/h allows a mean of about 33 km/h. Mean speeds in
	// jams on a motorway are below 33 km/h.
	fluent, perCruise, street, mostAssumed = 27, 0.75, 33, 82
	// The mean is exponentially weighted with the time constant cruiseDecay. After some minutes at
	// city speeds, the mean has little left of an earlier speed on a motorway.
	cruiseDecay = 4 * time.Minute
	// A free flow that a source sends is limited to the range from leastFree to mostFree, in km/h.
	// A road with a free flow below 10 km/h is a yard rather than a street. No car has a mean speed
	// above 130 km/h.
	leastFree, mostFree = 10, 130

	// A drive begins in the state normal. The car's own mean speed changes the state to slow or jam
	// only if the mean covers at least the time settle, or the time leave if the car has not yet
	// been faster than fluent. Leaving a car park takes a minute or two at 8 to 12 km/h, so leave
	// is longer than settle. The mean changes the state to jam only after the time firstMinute of
	// the drive has passed. This is a requirement: the first minute of a drive is never a jam.
	settle, leave, firstMinute = 25 * time.Second, 80 * time.Second, time.Minute
)

// Times and speeds used by all driving rules. Speeds are in km/h.
const (
	// maxStep is the longest time between two speed readings for which the speed between them is
	// interpolated. It allows for a late report of a car that reports once a minute. After more than
	// sparse, positions show better how the car drove.
	maxStep, sparse = 75 * time.Second, 15 * time.Second
	// sampleCounts is the time for which a speed counts that was read after more than maxStep, if no
	// positions show how the car drove.
	sampleCounts = 20 * time.Second
	// speedHolds is how long the speed of a car may be missing before the car's positions show it.
	speedHolds = 10 * time.Second
	// A speed that is sent only when it changes holds while other readings of the car arrive. It is
	// folded again for the time of the previous other reading, when it is older than unchangedAfter,
	// and no longer when it is older than unchangedHolds: nobody drives longer at exactly one speed.
	unchangedAfter, unchangedHolds = 30 * time.Second, 30 * time.Minute
	// newDrive is the longest time between two readings of one drive. After a longer silence,
	// earlier speeds say nothing about the present traffic.
	newDrive = 10 * time.Minute
	// rampKmhPerSecond is the assumed acceleration of a car that stops or sets off: 1 m/s², which
	// drivers exceed at a light. If the time between two readings is longer than the car needs at
	// this acceleration, the car is taken to have been stationary for the rest of the time.
	rampKmhPerSecond = 3.6
	// freeFlowHolds is how long a free-flow speed that a source sent is valid. After that time, the
	// car may have left the road that the speed describes, and the source should have sent another
	// speed.
	freeFlowHolds = maxStep
	// A car faster than moving, in km/h, is taken to be driving.
	moving = 3
	// A car slower than stationaryBelow, in km/h, is taken to be stationary. If the engine is at
	// rest while the car is faster than drivingFrom, in km/h, the car is taken to be electric or a
	// hybrid: a towed car is slower, and few start-stop systems stop the engine at such a speed.
	stationaryBelow, drivingFrom = 1, 20
	// stayShows is how long a car must be in one circle (StayMetres) to be stationary: it was then
	// slower than 1.5 km/h, and a receiver's drift is no motion.
	stayShows = 2 * time.Minute
	// restAfter is how long a car must be stationary with its engine off to be taken as parked and
	// not as waiting. Start-stop systems stop the engine for minutes.
	restAfter = 5 * time.Minute
	// parkedAfter is how long a car must be stationary to be taken as parked, if neither engine nor
	// ignition shows whether it waits. Cars in a queue rarely wait longer than that without moving
	// once.
	parkedAfter = 10 * time.Minute
	// closedAfter replaces parkedAfter for a car whose mean speed was at least motorway, in km/h,
	// before it stopped. Cars do not park on a motorway, and a motorway may be closed for an hour.
	closedAfter = time.Hour
	motorway    = 80
	// ignitionHolds is how long after an "ignition on" a stationary car with its engine at rest is
	// not taken as parked.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. If the car is seen to move
	// later than that, its ignition is taken to be on: the message that reported it was lost.
	coasting = 30 * time.Second
)
