package vehicle

import "math"

// TrafficMemory is what the driving rules carry from one speed to the next,
// besides the state's Pace and MeanSpeed.
type TrafficMemory struct {
	// Start is when the drive began, Changed when Pace last changed; zero if
	// not in this drive.
	Start, Changed UnixMilli
	// Evidence is how much speaks for a jam, in seconds: it grows while the
	// car creeps or stands, and shrinks while it is under way.
	Evidence float32
	// Sluggish is how long the car has not got under way, in seconds: time
	// above the fluent speed takes it away again.
	Sluggish float32
	// Stop is how long the car has stood, or moved at walking pace, in seconds,
	// as far as it matters.
	Stop float32
	// Moved is set once the car has moved in this drive, UnderWay once it has
	// driven at a fluent speed.
	Moved, UnderWay bool
	// EngineMute is set once the engine was at rest while the car drove: an electric
	// car or a hybrid, whose engine tells nothing of a stop. (New fields go to the end:
	// stored memories then still say what they said.)
	EngineMute bool
	// Rolled is how far the car has come since it last stood or went at walking
	// pace, in metres, as far as it matters; zero again at motorway speed.
	Rolled float32
	// Cruise is the mean speed of the last minutes under way, in km/h; zero if the
	// car has not been under way in this drive.
	Cruise float32
	// Stood is since when the car has stood; zero if it does not.
	Stood UnixMilli
}

// observeSpeed takes a speed read at t into the evidence and judges anew.
func (s *State) observeSpeed(r *rules, kmh float32, t UnixMilli) {
	prev, ok := s.speed()
	step := t.Sub(prev.Time)
	switch {
	case !ok || step > newDrive:
		s.startDrive(kmh, t)
		s.Traffic.Moved, s.Traffic.UnderWay = kmh > moving, kmh >= r.fluent
	case step > maxStep:
		// The car may have been anywhere: what was known stands, but it is
		// another stop and another mean.
		s.Traffic.Stop, s.MeanSpeed = 0, kmh
	case step > 0:
		seconds := float32(step.Seconds())
		s.Traffic.collect(r, prev.Value, kmh, seconds, s.scale(r, t))
		if s.Pace != TrafficJam { // in a queue the road before it still counts
			s.Traffic.cruise(r, prev.Value, kmh, seconds)
		}
		weight := float32(-math.Expm1(-step.Seconds() / r.meanDecay.Seconds()))
		s.MeanSpeed += weight * ((prev.Value+kmh)/2 - s.MeanSpeed)
	}
	s.judge(r, t)
}

// startDrive forgets what was known of traffic: a drive starts in "normal".
func (s *State) startDrive(kmh float32, t UnixMilli) {
	s.Traffic = TrafficMemory{Start: t}
	s.MeanSpeed, s.Pace = kmh, NormalDriving
}

// collect adds what driving from one speed to another in so many seconds says,
// taking the speed to change evenly: then it does not matter how often a car
// reports on the way. But a car that stops or sets off does so at once, and stands
// for the rest of a long step: a red light seen once in 30 s is no creeping.
func (m *TrafficMemory) collect(r *rules, from, to, seconds float32, road scale) {
	m.Moved = m.Moved || to > moving
	stops, starts := to < r.crawl, from < r.crawl
	if starts && stops {
		m.stand(r, seconds)
		return
	}
	if starts {
		ramp := min(seconds, (to-from)/rampKmhPerSecond)
		slow := ramp * below(from, to, r.crawl)
		m.stand(r, seconds-ramp+slow)
		from, seconds = r.crawl, ramp-slow
	}
	if !stops {
		m.drive(r, from, to, seconds, road)
		return
	}
	ramp := min(seconds, (from-to)/rampKmhPerSecond)
	slow := ramp * below(from, to, r.crawl)
	m.drive(r, from, r.crawl, ramp-slow, road)
	m.stand(r, seconds-ramp+slow)
}

// stand adds a time on the spot or at walking pace.
func (m *TrafficMemory) stand(r *rules, seconds float32) {
	until := m.Stop + seconds
	short := min(until, r.stopCounts) - min(m.Stop, r.stopCounts)
	long := max(until, r.longStop) - max(m.Stop, r.longStop)
	if !m.Moved {
		long = 0 // it idles where it was parked
	}
	m.add(r, short*r.perCrawl+long*r.perLongStop, short)
	m.Stop, m.Rolled = min(until, r.longStop), 0
}

// drive adds an even change of speed above walking pace. The first metres after a
// stop are still part of it: a car moves up in a queue before a light, or parks.
func (m *TrafficMemory) drive(r *rules, from, to, seconds float32, road scale) {
	if seconds <= 0 {
		return
	}
	if m.Stop > 0 && m.Rolled < r.moveUp {
		rolls := timeFor(r.moveUp-m.Rolled, from, to, seconds)
		at := from + (to-from)*rolls/seconds
		rolled := m.Rolled + (from+at)/2*rolls/3.6
		m.stand(r, rolls)
		m.Rolled = rolled
		if rolls >= seconds {
			return
		}
		from, seconds = at, seconds-rolls
	}
	m.Stop = 0
	if to >= motorway {
		m.Rolled = 0
	}
	m.UnderWay = m.UnderWay || to >= r.fluent*road.slow
	creep, fluent := below(from, to, r.creep*road.creep), below(from, to, r.fluent*road.jam)
	between := r.perBetween / max(1, road.jam*road.jam)
	evidence := creep*r.perCreep + (fluent-creep)*between + (1-fluent)*r.perFluent
	sluggish := below(from, to, r.fluent*road.slow)
	m.add(r, seconds*evidence, seconds*(sluggish+(1-sluggish)*r.sluggishFluent))
}

// timeFor is how much of so many seconds, in which the speed changes evenly, it
// takes to come so many metres.
func timeFor(metres, from, to, seconds float32) float32 {
	v, change := from/3.6, (to-from)/3.6
	root := v*v + 2*change/seconds*metres
	if root < 0 {
		return seconds // it stops before
	}
	// Of the two forms of the solution this one holds at any acceleration.
	return min(seconds, 2*metres/(v+float32(math.Sqrt(float64(root)))))
}

// cruise keeps the speed at which the car goes where it is under way.
func (m *TrafficMemory) cruise(r *rules, from, to, seconds float32) {
	above := 1 - below(from, to, r.fluent)
	if above == 0 {
		return
	}
	kmh := min((max(from, r.fluent)+max(to, r.fluent))/2, r.mostAssumed/r.perCruise)
	if m.Cruise == 0 {
		m.Cruise = kmh
	}
	m.Cruise += float32(-math.Expm1(-float64(above*seconds)/r.cruiseDecay.Seconds())) * (kmh - m.Cruise)
}

func (m *TrafficMemory) add(r *rules, evidence, sluggish float32) {
	if !m.UnderWay && evidence > 0 {
		evidence *= r.leaving
	}
	m.Evidence = max(0, min(m.Evidence+evidence, r.mostEvidence))
	m.Sluggish = max(0, min(m.Sluggish+sluggish, r.mostSluggish))
}

// below is the part of an even change from one speed to another that is spent
// below a third.
func below(from, to, limit float32) float32 {
	lo, hi := min(from, to), max(from, to)
	switch {
	case hi < limit:
		return 1
	case lo >= limit:
		return 0
	}
	return (limit - lo) / (hi - lo)
}

// judge sets Pace by the evidence, with hysteresis, and not before the last
// change has stood for a while.
func (s *State) judge(r *rules, t UnixMilli) {
	m := &s.Traffic
	want := s.wants(r, t)
	if want == s.Pace || m.Changed != 0 && t.Sub(m.Changed) < r.hold {
		return
	}
	s.Pace, m.Changed = want, t
}

// wants is what the evidence speaks for, whatever was said a moment ago.
func (s *State) wants(r *rules, t UnixMilli) DrivingState {
	jam := r.jamAt
	if s.Pace == TrafficJam {
		jam = r.jamUntil
	}
	m := &s.Traffic
	switch {
	case m.Evidence >= jam && t.Sub(m.Start) >= r.settle:
		return TrafficJam
	case s.Pace != NormalDriving && (m.Evidence >= r.slowUntil || m.Sluggish >= r.sluggishUntil),
		s.Pace == NormalDriving && (m.Evidence >= r.slowAt || m.Sluggish >= r.sluggishAt) && s.MeanSpeed >= r.slowMoves:
		return SlowDriving
	}
	return NormalDriving
}

// scale is a road's free flow over that of a city street, as far as it moves the
// speed of creeping, that of being under way out of a jam, and that of slow driving.
type scale struct{ creep, jam, slow float32 }

// scale is that of the road at t: by the free flow that was given, else by how fast
// the car went, which makes a queue of what would be driving in a city, but nothing
// slow of it. And no creeping before it queues: it may cross the car park of a
// service area.
func (s *State) scale(r *rules, t UnixMilli) scale {
	free := s.freeFlow(r, t) / r.freeFlow
	if s.knowsFreeFlow(t) {
		return scale{free, free, free}
	}
	if !s.Traffic.queues(r) {
		return scale{1, free, 1}
	}
	return scale{free, free, 1}
}

// queues reports whether the car has stood since it last went at motorway speed, or
// has not got under way for longer than it takes to cross a car park.
func (m *TrafficMemory) queues(r *rules) bool {
	return m.Rolled > 0 || m.Sluggish >= r.queuesAfter
}

// freeFlow is the free-flow speed of the road at t, in km/h, given or assumed.
func (s *State) freeFlow(r *rules, t UnixMilli) float32 {
	if !s.knowsFreeFlow(t) {
		return max(r.freeFlow, min(r.perCruise*s.Traffic.Cruise, r.mostAssumed))
	}
	return max(r.leastFree, min(s.Latest[FreeFlowSpeed].Value, r.mostFree))
}

// knowsFreeFlow reports whether a free-flow speed of the road at t was read.
func (s *State) knowsFreeFlow(t UnixMilli) bool {
	f := s.Latest[FreeFlowSpeed]
	return f.Value > 0 && t.Sub(f.Time) <= freeFlowHolds
}
