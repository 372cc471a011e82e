package vehicle

import "time"

// DrivingRules is the version of the driving rules: it increases whenever the same readings may
// lead to another verdict.
const DrivingRules = 7

// JamShare and SlowShare are the borders of the driving states. The share is the speed of traffic
// divided by its speed in light traffic, or the travel time in light traffic, ordinary red lights
// included, divided by the present one. At JamShare the travel time is 2.5 times that in light
// traffic, and at SlowShare 1.5 times. docs/verdicts.md compares this with the Highway Capacity
// Manual, DATEX II and the travel-time index.
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

func StateOfShare(share float32) DrivingState {
	switch {
	case share <= JamShare:
		return TrafficJam
	case share <= SlowShare:
		return SlowDriving
	}
	return NormalDriving
}

// Thresholds of the driving verdict, chosen by their results on two simulated roads (Bologna and a
// motorway, with Eclipse SUMO). docs/verdicts.md compares these with three roads that were held
// back. On the recorded drives (tds), none of 511 random sets reached a macro-F1 of 0.50.
const (
	// Within paceHolds after a change, the state changes again only if the share is beyond a border
	// by the factor clearBy. It is not fixed for that time, because half of the changes of the true
	// state follow the previous one within a minute.
	clearBy, paceHolds = 1.03, time.Minute
	// othersWeight is the weight of other cars, and the rest that of the car itself, in the delay
	// of the stretches just driven. It is reduced if others show only a part of these.
	othersWeight = 0.8

	// apartFrom is the RoadAround.Apart from which the free flow of the road may be that of another
	// stream, so that the car's own is used if it is lower.
	apartFrom = 0.5

	// In a stop, a car is slower than stopKmh: stationary, at walking pace or manoeuvring. The
	// first moveUp metres afterwards still belong to it, because parking takes a few moves of one
	// or two car lengths.
	stopKmh, moveUp = 4, 12
	// The car's mean has the first stopCounts seconds of a stop and the time after longStop. A red
	// light shows little about traffic, however long it is; but lights complete their cycle in two
	// minutes, and parking takes no longer, so a longer stop has another cause.
	stopCounts, longStop = 30, 120
	meanDecay            = time.Minute
	// topHolds is how long a speed that the car reached shows that the road is free: the cycle of a
	// light.
	topHolds = 2 * time.Minute

	// If neither the road nor the source gives the free flow, it is perCruise times the mean of the
	// speeds above cruiseFromKmh, at least streetKmh and at most mostAssumed, all in km/h. Lights
	// and crossings make the mean speed in a street about a quarter lower than the speed between
	// them. A limit of 50 km/h allows a mean of about 33; means in jams on a motorway are below
	// that.
	cruiseFromKmh, perCruise, streetKmh, mostAssumed = 27, 0.75, 33, 82
	// After some minutes at city speeds, little is left of an earlier speed on a motorway.
	cruiseDecay = 4 * time.Minute
	// Limits in km/h of a free flow that a source sends: below 10 is a yard, and no mean speed is
	// above 130.
	leastFree, mostFree = 10, 130

	// A drive begins as normal. Its own mean changes that only if it covers paceAfter, or
	// paceAfterPark if the car was not yet faster than cruiseFromKmh, because leaving a car park
	// takes a minute or two at 8 to 12 km/h. A requirement: the first minute of a drive is never a
	// jam.
	paceAfter, paceAfterPark, firstMinute = 25 * time.Second, 80 * time.Second, time.Minute
)

const (
	// Between two readings at most maxStep apart, the speed is interpolated; it allows for a late
	// report of a car that reports once a minute. After more than sparse, positions show better how
	// the car drove.
	maxStep, sparse = 75 * time.Second, 15 * time.Second
	// sampleCounts is the time for which a speed read after more than maxStep counts, without
	// positions.
	sampleCounts = 20 * time.Second
	// speedHolds is how long a speed may be missing before positions replace it.
	speedHolds = 10 * time.Second
	// A speed that is sent only when it changes is folded again for the time of the previous other
	// reading if it is older than unchangedAfter, but not unchangedHolds: nobody drives longer at
	// exactly one speed.
	unchangedAfter, unchangedHolds = 30 * time.Second, 30 * time.Minute
	// newDrive is the longest time between two readings of one drive; earlier speeds say nothing
	// about the present traffic.
	newDrive = 10 * time.Minute
	// rampKmhPerSecond is the assumed acceleration of a car that stops or sets off: 1 m/s², which
	// drivers exceed at a light. For the rest of the time between two readings, the car is
	// stationary.
	rampKmhPerSecond = 3.6
	// freeFlowHolds is how long a free flow of a source is valid: then the car may have left the
	// road.
	freeFlowHolds = maxStep
	// A faster car is driving.
	movingKmh = 3
	// A slower car is stationary. An engine at rest above drivingFrom (km/h) is that of an electric
	// or hybrid car: a towed car is slower, and few start-stop systems stop the engine at such a
	// speed.
	stationaryBelow, drivingFrom = 1, 20
	// stayShows is how long a car must be in one circle (StayMetres) to be stationary: it was then
	// slower than 1.5 km/h, and a receiver's drift is no motion.
	stayShows = 2 * time.Minute
	// restAfter is how long a car must be stationary with its engine off to be parked; start-stop
	// systems stop it for minutes.
	restAfter = 5 * time.Minute
	// parkedAfter is the same if neither engine nor ignition shows whether the car waits. Cars in a
	// queue rarely wait longer without moving once.
	parkedAfter = 10 * time.Minute
	// closedAfter replaces parkedAfter if the mean speed before was at least motorway, in km/h:
	// cars do not park there, and a motorway may be closed for an hour.
	closedAfter = time.Hour
	motorway    = 80
	// ignitionHolds is how long after an "ignition on" a stationary car with its engine at rest is
	// not parked.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. If it moves later, the
	// message that the ignition is on was lost.
	coasting = 30 * time.Second
)
