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
		s.Traffic.collect(r, prev.Value, kmh, seconds, s.freeFlow(r, t)/r.freeFlow)
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
// for the rest of a long step: a red light seen once in 30 s is no creeping. Scale
// is the road's free flow over that of a city street.
func (m *TrafficMemory) collect(r *rules, from, to, seconds, scale float32) {
	m.Moved = m.Moved || to > moving
	stops, starts := to < r.crawl, from < r.crawl
	switch {
	case starts && stops:
		m.stand(r, seconds)
	case starts:
		ramp := min(seconds, (to-from)/rampKmhPerSecond)
		m.stand(r, seconds-ramp)
		m.drive(r, from, to, ramp, scale)
	case stops:
		ramp := min(seconds, (from-to)/rampKmhPerSecond)
		m.drive(r, from, to, ramp, scale)
		m.stand(r, seconds-ramp)
	default:
		m.drive(r, from, to, seconds, scale)
	}
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
	m.Stop = min(until, r.longStop)
}

// drive adds an even change of speed that is not all at walking pace.
func (m *TrafficMemory) drive(r *rules, from, to, seconds, scale float32) {
	m.Stop = 0
	m.UnderWay = m.UnderWay || to >= r.fluent*scale
	crawl, creep, fluent := below(from, to, r.crawl), below(from, to, r.creep*scale), below(from, to, r.fluent*scale)
	m.add(r, seconds*(crawl*r.perCrawl+(creep-crawl)*r.perCreep+(fluent-creep)*r.perBetween+(1-fluent)*r.perFluent), seconds*(fluent+(1-fluent)*r.sluggishFluent))
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

// freeFlow is the free-flow speed of the road at t, in km/h.
func (s *State) freeFlow(r *rules, t UnixMilli) float32 {
	f := s.Latest[FreeFlowSpeed]
	if !s.knowsFreeFlow(t) {
		return r.freeFlow
	}
	return max(r.leastFree, min(f.Value, r.mostFree))
}

// knowsFreeFlow reports whether a free-flow speed of the road at t was read.
func (s *State) knowsFreeFlow(t UnixMilli) bool {
	f := s.Latest[FreeFlowSpeed]
	return f.Value > 0 && t.Sub(f.Time) <= freeFlowHolds
}
