package vehicle

import "time"

// DrivingRules is the version of the driving rules. It changes whenever the same
// readings may lead to another verdict. Version 1 was a decayed mean speed; version 2
// took a light seen once in 30 s for creeping, and an engine speed of 0 read hours ago
// for an engine at rest; version 3 took parking in bursts for a queue, and stop and go
// on a motorway for none; version 4 took the car park of a service area for a queue, and
// let a drive that began after minutes of silence jam in its first minute.
const DrivingRules = 5

// rules are the thresholds of the driving rules: all of them, and nowhere else.
// Speeds in km/h, evidence in seconds.
type rules struct {
	// Speeds. Those in the middle are for streets where traffic flows freely
	// at freeFlow; where a source says what the free flow is, they scale.
	crawl    float32 // below: standing, walking pace, manoeuvring; never scaled
	creep    float32 // below, and above crawl: creeping, what only a queue does
	fluent   float32 // above: under way
	freeFlow float32 // free flow of a city street, taken where none is given
	// leastFree and mostFree bound a given free flow.
	leastFree, mostFree float32
	// Where none is given, but the car was faster a while ago, perCruise of its mean
	// speed while under way is taken, at most mostAssumed: queues on a motorway come
	// to 40 km/h between two stops. The mean is one of about cruiseDecay under way.
	perCruise, mostAssumed float32
	cruiseDecay            time.Duration
	// queuesAfter is how long such a car has not been under way when what is slow on
	// a fast road counts as creeping, if it did not stand before.
	queuesAfter float32

	// What a second at such a speed adds to the evidence of a jam.
	perCrawl, perCreep, perBetween, perFluent float32
	// A stop, a time spent below crawl, adds perCrawl only so long (a red light,
	// parking), then nothing, and from longStop on perLongStop.
	stopCounts, longStop, perLongStop float32
	// The first moveUp metres after a stop are still part of it: a car moves up in
	// a queue before a light, or parks.
	moveUp float32

	// leaving is what part of the evidence counts before the car has been
	// under way: it may be leaving a car park.
	leaving float32

	// Evidence, from 0 to mostEvidence, that begins and ends a verdict.
	jamAt, jamUntil, slowAt, slowUntil, mostEvidence float32
	// Sluggish time that begins and ends slow driving, whatever the evidence,
	// and what a second under way adds to it.
	sluggishAt, sluggishUntil, mostSluggish, sluggishFluent float32
	// slowMoves is the mean speed over about meanDecay above which a car with
	// some evidence drives slowly; below it, it waits, and may yet be in a jam.
	slowMoves float32
	meanDecay time.Duration

	settle time.Duration // no jam so early in a drive
	hold   time.Duration // a verdict stands at least so long
}

// standardRules are the ones in force. What they rest on, and how they do on
// recorded drives, is in docs/verdicts.md.
var standardRules = rules{
	// Walking pace. A parking manoeuvre stays below it, mostly.
	crawl: 6,
	// Highway Capacity Manual 2000, exhibit 15-2: on streets with a free flow of
	// 55 km/h the level of service is F, a jam, up to 17 km/h, and at least C,
	// stable, from 28. Taken at 50, what European cities allow.
	creep:    17.5,
	fluent:   30,
	freeFlow: 50,
	// A slower street is a yard; a faster road than 130 has no jam speed above
	// 45 km/h.
	leastFree: 30, mostFree: 130,
	// From 72 km/h on this is more than 50. At 115 and above, 28 km/h is creeping,
	// and 48 under way. Some minutes at the pace of a city forget a motorway.
	perCruise: 0.7, mostAssumed: 80, cruiseDecay: 4 * time.Minute,
	// Nobody takes longer to cross a service area, at 20 to 28 km/h.
	queuesAfter: 90,

	// A queue moves in the creeping band, a red light does not: a second of
	// creeping says nearly four times what a second of standing says. Under
	// way all of it is forgotten in 13 s; between, at 17.5 to 30 km/h, in 38 s.
	perCrawl: 0.4, perCreep: 1.5, perBetween: -2, perFluent: -6,
	// Traffic lights go through all their phases in two minutes or less, and
	// nobody needs longer to park.
	stopCounts: 60, longStop: 120, perLongStop: 1,
	// Parking is a few moves of one or two car's lengths each.
	moveUp: 12,
	// A car park's exit takes a minute or two at 8 to 12 km/h.
	leaving: 0.33,

	// 40 is 27 s of creeping, or 136 s on the spot or at walking pace. A red
	// light of 90 s comes to 24, and so does parking; two lights to 33.
	jamAt: 40, jamUntil: 20, slowAt: 32, slowUntil: 25, mostEvidence: 75,
	// Three minutes without getting under way are slow driving, jam or not.
	sluggishAt: 180, sluggishUntil: 130, mostSluggish: 185, sluggishFluent: -6,
	slowMoves: 13, meanDecay: 20 * time.Second,

	// "The first minute of a drive is never a jam", "no more than one change a
	// minute": asked for, not measured.
	settle: time.Minute, hold: time.Minute,
}

// Times of all driving rules.
const (
	// maxStep is the longest time between two speeds that counts as driving
	// from one to the other. A longer gap is not evidence of anything. Cars
	// report once a minute or more often; 75 s allow for one that is late.
	maxStep = 75 * time.Second
	// newDrive is a silence after which what was known says nothing more.
	newDrive = 10 * time.Minute
	// rampKmhPerSecond is how fast a car at least gains or loses speed when it sets
	// off or stops: 1 m/s², less than drivers do at a light. What a step between two
	// readings is longer, it stood.
	rampKmhPerSecond = 3.6
	// freeFlowHolds is how long a free-flow speed counts: until the next one is due,
	// and no longer, since the car may have left the road that it was said of.
	freeFlowHolds = maxStep
	// moving is the speed, in km/h, above which a car is certainly under way.
	moving = 3
	// stands is the speed below which a car is taken to stand. At drives and above,
	// no car is towed, and few have a start-stop system that halts the engine.
	stands, drives = 1, 20
	// restAfter is how long a car stands with its engine off until it is
	// parked rather than waiting (start-stop systems idle for minutes).
	restAfter = 5 * time.Minute
	// parkedAfter is how long a car stands until it is parked where neither engine
	// nor ignition tells: few standing queues stand longer without moving up once.
	parkedAfter = 10 * time.Minute
	// closedAfter is the same for a car that came from a road where it went at
	// motorway speed, in km/h: nobody parks there, and some are closed for an hour.
	closedAfter = time.Hour
	motorway    = 80
	// ignitionHolds is how long "ignition on" outweighs a resting engine.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. One
	// that moves later has it on, and the message that said so was lost.
	coasting = 30 * time.Second
)
