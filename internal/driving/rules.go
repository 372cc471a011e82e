package driving

import "time"

// Version increases whenever the same readings may lead to another verdict.
const Version = 7

// The share is the speed of traffic divided by its speed in light traffic, ordinary red lights
// included; so it is the inverse of the travel-time index. docs/verdicts.md compares these borders
// with others.
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

func StateOfShare(share float32) State {
	switch {
	case share <= JamShare:
		return Jam
	case share <= SlowShare:
		return Slow
	}
	return Normal
}

// These numbers were chosen by the results on the first two simulated roads of docs/verdicts.md;
// the other three were held back. On the recorded drives (tds), 511 random sets stayed below a
// macro-F1 of 0.50.
const (
	// Within paceHolds after a change of the state, it changes again only if the pace (Share) is
	// beyond the border of the state by the factor clearBy.
	clearBy, paceHolds = 1.03, time.Minute
	// Weight of other cars in the delay of the stretches just driven.
	othersWeight = 0.8
	// From this RoadAround.Apart on, the road's free flow may be that of other lanes.
	apartFrom = 0.5

	// In a stop, a car is slower than stopKmh. The next moveUp metres belong to the stop, because
	// parking takes moves of one or two car lengths.
	stopKmh, moveUp = 4, 12
	// Of a stop, MeanSpeed includes the first stopCounts seconds, and the time after longStop:
	// lights complete their cycle in two minutes, and parking takes no longer.
	stopCounts, longStop = 30, 120
	meanDecay            = time.Minute
	// For topHolds, the cycle of a light, the highest speed of the car shows that the road is free.
	topHolds = 2 * time.Minute

	// An unknown free flow is taken as perCruise times the mean of the speeds above cruiseFromKmh,
	// from streetKmh to mostAssumed. Lights and crossings make the mean speed of a street a quarter
	// lower than the speed between them: 33 with a limit of 50 km/h, more than in the jam of a
	// motorway. With cruiseDecay, minutes in a city forget a motorway.
	cruiseFromKmh, perCruise, streetKmh, mostAssumed = 27, 0.75, 33, 82
	cruiseDecay                                      = 4 * time.Minute
	// Limits of a free flow that a source sends: below 10 km/h is a yard, and no road's is above
	// 130.
	leastFree, mostFree = 10, 130

	// MeanSpeed must cover paceAfter to change the state, paceAfterPark if the car was never above
	// cruiseFromKmh, because leaving a car park takes a minute or two at 8 to 12 km/h. A
	// requirement: no jam in the first minute of a drive.
	paceAfter, paceAfterPark, firstMinute = 25 * time.Second, 80 * time.Second, time.Minute
)

const (
	// Between two readings up to maxStep apart, the speed is interpolated; a car that reports once
	// a minute may be late. After sparse, positions show better how the car drove. After maxStep,
	// a reading covers sampleCounts only, and the car may have left the road.
	maxStep, sparse, sampleCounts = 75 * time.Second, 15 * time.Second, 20 * time.Second
	freeFlowHolds, roadHolds      = maxStep, maxStep
	// A speed may be missing for so long before positions replace it.
	speedHolds = 10 * time.Second
	// A speed that is sent only on changes is repeated when older than unchangedAfter. Nobody
	// drives longer than unchangedHolds at exactly one speed.
	unchangedAfter, unchangedHolds = 30 * time.Second, 30 * time.Minute
	// Before and after a stop, the speed is taken to change by 1 m/s², which real drivers exceed.
	// If it changed evenly between readings, a car at a red light that reports every 30 s would
	// seem to creep.
	rampKmhPerSecond = 3.6
	// Below stationaryBelow, a car is stationary. With its engine at rest above drivingFrom, it is
	// electric or hybrid: a towed car is slower, and few start-stop systems stop the engine at
	// speed.
	stationaryBelow, drivingFrom = 1, 20
	// After so long in one circle (StayMetres), a car was slower than 1.5 km/h, whatever its
	// receiver's drift.
	stayShows = 2 * time.Minute
	// longer than the minutes for which start-stop systems stop an engine
	restAfter = 5 * time.Minute
	// If neither engine nor ignition shows it, a stationary car is parked after parkedAfter: queues
	// rarely stand longer. If its mean speed was above motorway, after closedAfter: cars do not
	// park there, and the road may be closed.
	parkedAfter, closedAfter, motorway = 10 * time.Minute, time.Hour, 80
	// An "ignition on" shows for so long that a standing car is not parked.
	ignitionHolds = time.Hour
	// A car may roll so long after its ignition went off. If it moves later, the "ignition on" was
	// lost.
	coasting = 30 * time.Second
)
