package vehicle

import "time"

// DrivingRules is the version of the driving rules.
const DrivingRules = 6

// rules are the thresholds of the driving verdict.
type rules struct {
	// A verdict compares the share: the travel time when traffic is light, ordinary
	// red lights included, over the present one.
	jam, slow float32 // at or below: a jam, slow driving
	// clear is how far beyond a border the share must be to change, within hold of the
	// last change, the verdict once more.
	clear float32
	hold  time.Duration
	// others is how much the delay weighs that other cars show behind the car, where they
	// show all of its way; the rest is the car's own.
	others float32

	// The car's own mean speed is one of about meanDecay. Below crawl it stands, walks
	// or manoeuvres: of such a stop the first stopCounts seconds count, and those after
	// longStop. The first moveUp metres after a stop are still part of it.
	crawl, stopCounts, longStop, moveUp float32
	meanDecay                           time.Duration

	// Where neither road nor source tells the free flow, perCruise of the car's mean
	// speed while above fluent is taken, one of about cruiseDecay, at least street and
	// at most mostAssumed.
	fluent, perCruise, street, mostAssumed float32
	cruiseDecay                            time.Duration
	// leastFree and mostFree bound the free flow that a source sends.
	leastFree, mostFree float32

	// A drive begins as normal. Its own speeds change that once settle of it counted for
	// the mean, leave if it has not been above fluent; and they make no jam in the first
	// firstMinute.
	settle, leave, firstMinute time.Duration
}

// The borders of the states, as shares of light traffic's speed: travel times of 2.5 and
// 1.5 times the free one (docs/verdicts.md).
const (
	JamShare  = 0.4
	SlowShare = 2.0 / 3
)

// StateOfShare is the state that a share of light traffic's speed stands for.
func StateOfShare(share float32) DrivingState { return standardRules.state(share) }

// standardRules are the ones in force. What they rest on, and how they do on roads
// and drives, is in docs/verdicts.md.
var standardRules = rules{
	jam: JamShare, slow: SlowShare,
	// On roads that simulators drove, traffic itself changes its state within a minute
	// every other time: a verdict that could never follow would be wrong for as long.
	clear: 1.03, hold: time.Minute,
	others: 0.8,

	// Walking pace. A parking manoeuvre stays below it, mostly.
	crawl: 4,
	// A red light says little, and a longer one no more; but traffic lights go through
	// all their phases in two minutes or less, and nobody needs longer to park.
	stopCounts: 30, longStop: 120,
	// Parking is a few moves of one or two car's lengths each.
	moveUp:    12,
	meanDecay: time.Minute,

	// Lights and crossings cost a street about a quarter of the speed at which cars
	// drive between them. A street of 50 allows some 33 km/h; a motorway's jams are
	// below 33 km/h.
	fluent: 27, perCruise: 0.75, street: 33, mostAssumed: 82,
	// Some minutes at the pace of a city forget a motorway.
	cruiseDecay: 4 * time.Minute,
	// A slower street is a yard; nobody drives faster than 130 on average.
	leastFree: 10, mostFree: 130,

	// A car park's exit takes a minute or two at 8 to 12 km/h. "The first minute of a
	// drive is never a jam" was asked for.
	settle: 25 * time.Second, leave: 80 * time.Second, firstMinute: time.Minute,
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
