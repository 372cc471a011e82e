package vehicle

import (
	"math"
	"time"
)

// TrafficMemory is what the driving rules remember between two speed readings, in addition to Pace
// and MeanSpeed of the State.
type TrafficMemory struct {
	// Kmh is the car's speed at the time At, the newest for which a speed is known: as it was read,
	// or as the car's positions show it.
	Kmh float32
	At  UnixMilli
	// Start is when the drive began. Changed is when Pace, the driving state, last changed in this
	// drive; zero if it has not changed.
	Start, Changed UnixMilli
	// Share is the measure behind the verdict: the travel time in light traffic divided by the
	// present travel time. FreeKmh is the speed in light traffic; Source says how it is known.
	Share, FreeKmh float32
	// MeanSeconds says on how many seconds of driving the state's MeanSpeed is based. MeanSpeed is
	// an exponentially decaying mean, so older seconds have a lower weight, and MeanSeconds is at
	// most the time constant of the mean, one minute.
	MeanSeconds float32
	// Stop is how many seconds the present stop has lasted, at most longStop. In a stop, the car is
	// stationary or at walking pace. Stop is zero while the car drives.
	Stop float32
	// Rolled is how far, in metres, the car has driven since it was last stationary or at walking
	// pace; it is counted up to moveUp.
	Rolled float32
	// TopKmh is the car's highest speed in the time topHolds, and TopAt when it was reached.
	TopKmh float32
	TopAt  UnixMilli
	// Cruise is the car's mean speed, in km/h, in the last minutes in which it drove faster than
	// the threshold fluent. It is zero if there were none in this drive.
	Cruise float32
	Source FreeFlowSource
	// Moved is set when the car has moved in this drive.
	Moved bool
	// EngineMute is set when the engine was seen at rest while the car drove. Such a car is
	// electric or a hybrid, and its engine speed says nothing about a stop.
	EngineMute bool
	// Stood is when the car became stationary; zero if it is not stationary.
	Stood UnixMilli
	// Repeats is how often a speed was read that equals the one read before. A source that sends a
	// speed only when it changes never repeats one.
	Repeats uint8
}

// FreeFlowSource says how the free flow that a verdict uses is known.
type FreeFlowSource uint8

// The ways in which a free flow is known, the best last.
const (
	FreeFlowOfStreet FreeFlowSource = iota // nothing is known: the free flow of a street is assumed
	FreeFlowShown                          // estimated from the car's own speed
	FreeFlowSent                           // sent by the car's source
	FreeFlowOfRoad                         // learned from the cars on this road
	NumFreeFlowSources
)

// String returns the source as metrics and the API spell it.
func (f FreeFlowSource) String() string {
	return [...]string{"street", "shown", "sent", "road"}[f]
}

// observeMotion folds the speed at the time of a sample, if there is one, into MeanSpeed and
// Traffic, and sets Pace, the driving state. It is the speed that the sample has, unless the car's
// positions refute its speeds. Otherwise it is the speed that the positions show, if no speed was
// read for speedHolds. That is also how the car drove between two sparse readings. Latest must
// still hold the previous readings.
func (s *State) observeMotion(r *Readings, t UnixMilli) {
	m := &s.Traffic
	if t < m.At {
		return
	}
	kmh, read := r.Speed()
	last, _ := s.Speed()
	if read && last.Time != 0 && kmh == last.Value {
		m.Repeats = max(m.Repeats, m.Repeats+1)
	}
	shown, shows := s.Way.shownKmh()
	shows = shows && s.Way.Time == t
	switch since := t.Sub(m.At); {
	case read && !s.Way.Distrusted && since > sparse && shows:
		mean := max(shown, min(m.Kmh, kmh)) // a winding way is longer than the line
		s.drive(kmh, mean, mean, t)
	case read && !s.Way.Distrusted && since > maxStep && m.At != 0 && since <= newDrive:
		// The car may have been anywhere since. The reading is one sample of its speed.
		m.Kmh, m.At, m.Stop = kmh, t.Add(-sampleCounts), 0
		s.drive(kmh, kmh, kmh, t)
	case read && !s.Way.Distrusted:
		s.drive(kmh, m.Kmh, kmh, t)
	case shows && (s.Way.Distrusted || t.Sub(last.Time) > speedHolds):
		s.drive(shown, shown, shown, t)
	}
}

// holdSpeed folds the newest speed again for the time of the newest reading, if the car's source
// seems to send a speed only when it changes: the car reported, and no speed was read since. If
// SpeedHolds was read with the speed, it alone decides.
func (s *State) holdSpeed() {
	m := &s.Traffic
	last, ok := s.Speed()
	holds, since := unchangedHolds, s.Time.Sub(m.At)
	if given := s.Latest[SpeedHolds]; given.Time != 0 && given.Time == last.Time {
		holds = time.Duration(given.Value) * time.Second
	} else if m.Repeats != 0 || since > maxStep {
		return
	}
	if !ok || s.Way.Distrusted || since <= unchangedAfter || s.Time.Sub(last.Time) > holds {
		return
	}
	before := Reading{m.Kmh, m.At}
	s.drive(last.Value, last.Value, last.Value, s.Time)
	s.observeRest(before)
}

// drive folds the speed kmh at t into the driving rules. Since the last speed, the car's speed has
// changed linearly from one value to the other, in km/h.
func (s *State) drive(kmh, from, to float32, t UnixMilli) {
	m := &s.Traffic
	step := t.Sub(m.At)
	switch {
	case m.At == 0 || step > newDrive:
		s.startDrive(kmh, t)
		m.Moved = kmh > moving
	case step > 0:
		seconds, left := float32(step.Seconds()), m.Cruise > 0
		s.collect(from, to, seconds)
		if s.Pace != TrafficJam { // in a jam, Cruise keeps the speed from before the jam
			m.cruise(from, to, seconds)
		}
		if !left && m.Cruise > 0 { // the mean so far is of the way out of a car park
			s.MeanSpeed, m.MeanSeconds = kmh, 0
		}
	}
	m.Kmh, m.At = kmh, t
	if kmh >= m.TopKmh || t.Sub(m.TopAt) > topHolds {
		m.TopKmh, m.TopAt = kmh, t
	}
	s.setPace(t)
}

// startDrive resets what the driving rules know of traffic, for a drive that begins at t with the
// speed kmh. Its first state is "normal".
func (s *State) startDrive(kmh float32, t UnixMilli) {
	s.Traffic = TrafficMemory{Start: t, Kmh: kmh, At: t, Repeats: s.Traffic.Repeats}
	s.MeanSpeed, s.Pace = kmh, NormalDriving
}

// collect adds the seconds between two speed readings, from and to in km/h, to the car's mean
// speed. The speed is assumed to have changed linearly, so the mean does not depend on how often a
// car reports. But a car that stops or sets off is assumed to change its speed at the rate
// rampKmhPerSecond, and to be stationary for the rest of the time. Otherwise a car that waits at a
// red light and reports once in 30 s would seem to creep.
func (s *State) collect(from, to, seconds float32) {
	s.Traffic.Moved = s.Traffic.Moved || to > moving
	stops, starts := to < crawl, from < crawl
	if starts && stops {
		s.addStop((from+to)/2, seconds)
		return
	}
	if starts {
		ramp := min(seconds, (to-from)/rampKmhPerSecond)
		slow := ramp * below(from, to, crawl)
		s.addStop(from, seconds-ramp)
		s.addStop((from+crawl)/2, slow)
		from, seconds = crawl, ramp-slow
	}
	if !stops {
		s.addDrive(from, to, seconds)
		return
	}
	ramp := min(seconds, (from-to)/rampKmhPerSecond)
	slow := ramp * below(from, to, crawl)
	s.addDrive(from, crawl, ramp-slow)
	s.addStop((crawl+to)/2, slow)
	s.addStop(to, seconds-ramp)
}

// addStop adds to the mean speed a time in which the car was in a stop (see stopCounts).
func (s *State) addStop(kmh, seconds float32) {
	m := &s.Traffic
	until := m.Stop + seconds
	counts := min(until, stopCounts) - min(m.Stop, stopCounts) + max(until, longStop) - max(m.Stop, longStop)
	m.Stop, m.Rolled = min(until, longStop), 0
	if m.Moved { // otherwise the car idles where it was parked
		s.addToMean(kmh, kmh, counts)
	}
}

// addDrive adds to the car's mean speed a time in which the speed changed linearly and was above
// walking pace. The first moveUp metres after a stop are treated as part of the stop.
func (s *State) addDrive(from, to, seconds float32) {
	if seconds <= 0 {
		return
	}
	m := &s.Traffic
	if m.Stop > 0 && m.Rolled < moveUp {
		rolls := timeFor(moveUp-m.Rolled, from, to, seconds)
		at := from + (to-from)*rolls/seconds
		rolled := m.Rolled + (from+at)/2*rolls/3.6
		s.addStop((from+at)/2, rolls)
		m.Rolled = rolled
		if rolls >= seconds {
			return
		}
		from, seconds = at, seconds-rolls
	}
	m.Stop = 0
	s.addToMean(from, to, seconds)
}

// addToMean adds a time of linearly changing speed to MeanSpeed, which is an exponentially weighted
// moving average in continuous time. Let τ be meanDecay, m the old MeanSpeed and w its weight,
// MeanSeconds. If the speed was v(u) after u of the t seconds, the new MeanSpeed is
//
//	(m·w·e^(-t/τ) + ∫₀ᵗ v(u)·e^(-(t-u)/τ) du) / (w·e^(-t/τ) + τ·(1-e^(-t/τ)))
//
// The integral is computed exactly, so the result does not depend on the number of steps into which
// a change of speed is cut.
func (s *State) addToMean(from, to, seconds float32) {
	if seconds <= 0 {
		return
	}
	decay, t := meanDecay.Seconds(), float64(seconds)
	kept := math.Exp(-t / decay)
	weight := decay * (1 - kept)
	sum := float64(to)*weight - float64(to-from)/t*decay*(weight-t*kept)
	was := float64(s.Traffic.MeanSeconds) * kept
	s.MeanSpeed = float32(max(0, (float64(s.MeanSpeed)*was+sum)/(was+weight)))
	s.Traffic.MeanSeconds = float32(was + weight)
}

// timeFor returns how many seconds the car takes to drive the given metres, if its speed changes
// linearly from one value to the other, in km/h, within the given seconds. If the car does not
// drive these metres in that time, timeFor returns all of the seconds.
func timeFor(metres, from, to, seconds float32) float32 {
	v, change := from/3.6, (to-from)/3.6
	root := v*v + 2*change/seconds*metres
	if root < 0 {
		return seconds // the car stops before that
	}
	// Of the two forms of the quadratic solution, this one is valid at any acceleration,
	// zero included.
	return min(seconds, 2*metres/(v+float32(math.Sqrt(float64(root)))))
}

// cruise folds a time of linearly changing speed into Cruise, the car's mean speed while it is
// faster than the threshold fluent. A time in which the car is never above fluent changes nothing.
// Cruise is an exponentially weighted moving average over the time spent above fluent, with the
// time constant cruiseDecay. The mean of the speeds from and to, in km/h, is limited to
// mostAssumed/perCruise.
func (m *TrafficMemory) cruise(from, to, seconds float32) {
	above := 1 - below(from, to, fluent)
	if above == 0 {
		return
	}
	kmh := min((max(from, fluent)+max(to, fluent))/2, mostAssumed/perCruise)
	if m.Cruise == 0 {
		m.Cruise = kmh
	}
	m.Cruise += float32(-math.Expm1(-float64(above*seconds)/cruiseDecay.Seconds())) * (kmh - m.Cruise)
}

// below returns the part, from 0 to 1, of a time in which a speed that changes linearly between
// from and to is below limit.
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

// setPace computes Share, the present speed of traffic divided by the free flow, and sets Pace, the
// driving state, from it. There is a hysteresis (see clearBy). Early in a drive, Pace may remain
// unchanged (see isTooYoung).
func (s *State) setPace(t UnixMilli) {
	m := &s.Traffic
	road := s.share(t)
	want := StateOfShare(m.Share)
	if m.Changed != 0 && t.Sub(m.Changed) < hold {
		if want < s.Pace {
			want = min(s.Pace, StateOfShare(m.Share/clearBy))
		} else {
			want = max(s.Pace, StateOfShare(m.Share*clearBy))
		}
	}
	if !road && s.knowsRoad(t) {
		// The car is alone. A stop says little of traffic if the car reaches the road's speed between
		// its stops.
		want = min(want, StateOfShare(m.TopKmh*perCruise/m.FreeKmh))
	}
	if !road && s.isTooYoung(want, t) {
		want = s.Pace
	}
	if want != s.Pace {
		s.Pace, m.Changed = want, t
	}
}

// isTooYoung reports whether, at t, the drive is too short for the car's own speeds to show the
// driving state want. It is never too short for normal driving.
func (s *State) isTooYoung(want DrivingState, t UnixMilli) bool {
	m := &s.Traffic
	if want > NormalDriving && s.Way.Time != 0 && !s.Way.OnRoad {
		return true
	}
	counted := settle
	if m.Cruise == 0 {
		counted = leave
	}
	return want > NormalDriving && float64(m.MeanSeconds) < weight(counted) ||
		want == TrafficJam && t.Sub(m.Start) < firstMinute
}

// weight returns the weight, in seconds, that a new MeanSpeed has (its MeanSeconds) when it covers
// a time of the length counted. With the time constant τ = meanDecay, that is τ·(1-e^(-counted/τ)).
func weight(counted time.Duration) float64 {
	return meanDecay.Seconds() * -math.Expm1(-counted.Seconds()/meanDecay.Seconds())
}

// share sets Traffic.Share, Traffic.FreeKmh and Traffic.Source as of t, and reports whether the
// speeds of other cars were used. Without them, Share is the car's own mean speed divided by the
// free flow. With them, Share is the travel time in light traffic divided by the present travel
// time, on the road just behind and just ahead of the car. The present travel time is that in light
// traffic times a delay. Ahead of the car, the delay is that of the other cars. Behind the car, it
// is a weighted mean: the delay of the other cars has the weight othersWeight·ShownBehind, and the
// car's own delay has the rest.
func (s *State) share(t UnixMilli) (road bool) {
	m, a := &s.Traffic, &s.Road
	m.FreeKmh, m.Source = s.freeFlow(t)
	own := float32(1)
	if m.MeanSeconds > 0 {
		own = s.MeanSpeed / m.FreeKmh
	}
	m.Share = own
	if !s.seenByOthers(t) {
		return false
	}
	// DelayBehind and DelayAhead are multiples of the travel time at the road's own free flow,
	// a.FreeKmh. Share uses the free flow m.FreeKmh, so the delays are converted to it. The two
	// free flows differ if a.FreeKmh is only a guess (a.Young) and a better value is known.
	scale := m.FreeKmh / a.FreeKmh
	const leastShare = 0.01 // so that the delay of a stationary car is finite
	behind, with := 1/max(own, leastShare), 1-a.Apart
	if a.DelayBehind > 0 {
		others := othersWeight * a.ShownBehind * with
		behind = others*a.DelayBehind*scale + (1-others)*behind
	}
	free, present := a.FreeSecondsBehind, a.FreeSecondsBehind*behind
	if a.DelayAhead > 0 {
		free += a.FreeSecondsAhead * with
		present += a.FreeSecondsAhead * with * a.DelayAhead * scale
	}
	m.Share = free / present
	return true
}

// seenByOthers reports whether other cars show how traffic moves at t: a delay is known for the way
// behind the car or for the way ahead of it, and the car's last position is still valid.
func (s *State) seenByOthers(t UnixMilli) bool {
	return s.knowsRoad(t) && (s.Road.DelayBehind > 0 || s.Road.DelayAhead > 0)
}

// freeFlow returns the speed, in km/h, that the car's road allows at t in light traffic, and how
// that speed is known. It returns the first of these that is known:
//
//  1. the learned free flow of the road, unless it is a guess (RoadAround.Young);
//  2. the free flow that the source sent;
//  3. the guess for the road;
//  4. an estimate from the car's own speed;
//  5. the free flow that is assumed for any street.
func (s *State) freeFlow(t UnixMilli) (float32, FreeFlowSource) {
	shown, sent := max(street, min(perCruise*s.Traffic.Cruise, mostAssumed)), s.Latest[FreeFlowSpeed]
	switch {
	case s.knowsRoad(t) && s.Road.Apart >= apart && shown > street && shown < s.Road.FreeKmh:
		return shown, FreeFlowShown // the free flow may be that of the other stream
	case s.knowsRoad(t) && !s.Road.Young:
		return s.Road.FreeKmh, FreeFlowOfRoad
	case sent.Value > 0 && t.Sub(sent.Time) <= freeFlowHolds:
		return max(leastFree, min(sent.Value, mostFree)), FreeFlowSent
	case s.knowsRoad(t):
		return s.Road.FreeKmh, FreeFlowOfRoad
	case shown > street:
		return shown, FreeFlowShown
	}
	return street, FreeFlowOfStreet
}

// knowsRoad reports whether the free flow of the road at the car's last position is known, and this
// position is still valid at t.
func (s *State) knowsRoad(t UnixMilli) bool {
	return s.Road.FreeKmh > 0 && t.Sub(s.Road.Time) <= roadHolds
}

// roadTime returns the time of the oldest reading that a verdict on traffic uses. The verdict
// always uses the speed, which was read at t. It may also use the position and the free flow that
// the source sent.
func (s *State) roadTime(t UnixMilli) UnixMilli {
	if s.knowsRoad(t) {
		t = min(t, s.Road.Time)
	}
	if _, source := s.freeFlow(t); source == FreeFlowSent {
		t = min(t, s.Latest[FreeFlowSpeed].Time)
	}
	return t
}
