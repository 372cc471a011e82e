package vehicle

import (
	"math"
	"time"
)

// TrafficMemory is what the driving rules carry from one speed to the next,
// besides the state's Pace and MeanSpeed.
type TrafficMemory struct {
	// Start is when the drive began, Changed when Pace last changed; zero if
	// not in this drive.
	Start, Changed UnixMilli
	// Share is the measure behind the verdict: the travel time when traffic is light
	// over the present one. FreeKmh is the speed when traffic is light, and Source
	// tells where that is known from.
	Share, FreeKmh float32
	// MeanSeconds is the weight of the state's MeanSpeed, at most about a minute.
	MeanSeconds float32
	// Stop is how long the car has stood, or moved at walking pace, in seconds,
	// as far as it matters.
	Stop float32
	// Rolled is how far the car has come since it last stood or went at walking
	// pace, in metres, as far as it matters.
	Rolled float32
	// Cruise is the mean speed of the last minutes under way, in km/h; zero if the
	// car has not been under way in this drive.
	Cruise float32
	// Source is where the free flow is known from.
	Source FreeFlowSource
	// Moved is set once the car has moved in this drive.
	Moved bool
	// EngineMute is set once the engine was at rest while the car drove: an electric
	// car or a hybrid, whose engine tells nothing of a stop.
	EngineMute bool
	// Stood is since when the car has stood; zero if it does not.
	Stood UnixMilli
}

// FreeFlowSource tells where the free flow is known from that a verdict is
// relative to.
type FreeFlowSource uint8

// The sources of a free flow, the best last.
const (
	FreeFlowOfStreet FreeFlowSource = iota // nothing is known: that of a street
	FreeFlowShown                          // what the car itself showed lately
	FreeFlowSent                           // what its source sent
	FreeFlowOfRoad                         // what was seen on this road
	NumFreeFlowSources
)

// String names the source, as metrics and the API spell it.
func (f FreeFlowSource) String() string {
	return [...]string{"street", "shown", "sent", "road"}[f]
}

// observeSpeed takes a speed read at t into the car's own mean and judges.
func (s *State) observeSpeed(r *rules, kmh float32, t UnixMilli) {
	prev, ok := s.speed()
	step := t.Sub(prev.Time)
	switch {
	case !ok || step > newDrive:
		s.startDrive(kmh, t)
		s.Traffic.Moved = kmh > moving
	case step > maxStep:
		// The car may have been anywhere: what was known stands, but it is
		// another stop.
		s.Traffic.Stop = 0
	case step > 0:
		seconds, left := float32(step.Seconds()), s.Traffic.Cruise > 0
		s.collect(r, prev.Value, kmh, seconds)
		if s.Pace != TrafficJam { // in a queue the road before it still counts
			s.Traffic.cruise(r, prev.Value, kmh, seconds)
		}
		if !left && s.Traffic.Cruise > 0 { // of the car park
			s.MeanSpeed, s.Traffic.MeanSeconds = kmh, 0
		}
	}
	s.judge(r, t)
}

// startDrive forgets what was known of traffic: a drive starts in "normal".
func (s *State) startDrive(kmh float32, t UnixMilli) {
	s.Traffic = TrafficMemory{Start: t}
	s.MeanSpeed, s.Pace = kmh, NormalDriving
}

// collect adds a drive from one speed to another in so many seconds to the mean,
// taking the speed to change evenly: then it does not matter how often a car
// reports on the way. But a car that stops or sets off does so at once, and stands
// for the rest of a long step: a red light seen once in 30 s is no creeping.
func (s *State) collect(r *rules, from, to, seconds float32) {
	s.Traffic.Moved = s.Traffic.Moved || to > moving
	stops, starts := to < r.crawl, from < r.crawl
	if starts && stops {
		s.stand(r, (from+to)/2, seconds)
		return
	}
	if starts {
		ramp := min(seconds, (to-from)/rampKmhPerSecond)
		slow := ramp * below(from, to, r.crawl)
		s.stand(r, from, seconds-ramp)
		s.stand(r, (from+r.crawl)/2, slow)
		from, seconds = r.crawl, ramp-slow
	}
	if !stops {
		s.drive(r, from, to, seconds)
		return
	}
	ramp := min(seconds, (from-to)/rampKmhPerSecond)
	slow := ramp * below(from, to, r.crawl)
	s.drive(r, from, r.crawl, ramp-slow)
	s.stand(r, (r.crawl+to)/2, slow)
	s.stand(r, to, seconds-ramp)
}

// stand adds a time on the spot or at walking pace.
func (s *State) stand(r *rules, kmh, seconds float32) {
	m := &s.Traffic
	until := m.Stop + seconds
	counts := min(until, r.stopCounts) - min(m.Stop, r.stopCounts) + max(until, r.longStop) - max(m.Stop, r.longStop)
	m.Stop, m.Rolled = min(until, r.longStop), 0
	if m.Moved { // else it idles where it was parked
		s.average(r, kmh, kmh, counts)
	}
}

// drive adds an even change of speed above walking pace.
func (s *State) drive(r *rules, from, to, seconds float32) {
	if seconds <= 0 {
		return
	}
	m := &s.Traffic
	if m.Stop > 0 && m.Rolled < r.moveUp {
		rolls := timeFor(r.moveUp-m.Rolled, from, to, seconds)
		at := from + (to-from)*rolls/seconds
		rolled := m.Rolled + (from+at)/2*rolls/3.6
		s.stand(r, (from+at)/2, rolls)
		m.Rolled = rolled
		if rolls >= seconds {
			return
		}
		from, seconds = at, seconds-rolls
	}
	m.Stop = 0
	s.average(r, from, to, seconds)
}

// average adds an even change of speed to the car's mean, exactly: it makes no
// difference into how many steps the change is cut.
func (s *State) average(r *rules, from, to, seconds float32) {
	if seconds <= 0 {
		return
	}
	decay, t := r.meanDecay.Seconds(), float64(seconds)
	kept := math.Exp(-t / decay)
	weight := decay * (1 - kept)
	sum := float64(to)*weight - float64(to-from)/t*decay*(weight-t*kept)
	was := float64(s.Traffic.MeanSeconds) * kept
	s.MeanSpeed = float32(max(0, (float64(s.MeanSpeed)*was+sum)/(was+weight)))
	s.Traffic.MeanSeconds = float32(was + weight)
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

// judge sets Pace by the share. Within a minute of a change it takes a share that
// is clearly beyond the border to change it again.
func (s *State) judge(r *rules, t UnixMilli) {
	m := &s.Traffic
	road := s.share(r, t)
	want := r.state(m.Share)
	if m.Changed != 0 && t.Sub(m.Changed) < r.hold {
		if want < s.Pace {
			want = min(s.Pace, r.state(m.Share/r.clear))
		} else {
			want = max(s.Pace, r.state(m.Share*r.clear))
		}
	}
	if !road && s.settles(r, want, t) {
		want = s.Pace
	}
	if want != s.Pace {
		s.Pace, m.Changed = want, t
	}
}

// settles reports whether the drive is too young for its own speeds to say so.
func (s *State) settles(r *rules, want DrivingState, t UnixMilli) bool {
	m := &s.Traffic
	counted := r.settle
	if m.Cruise == 0 {
		counted = r.leave
	}
	return want > NormalDriving && float64(m.MeanSeconds) < r.weight(counted) ||
		want == TrafficJam && t.Sub(m.Start) < r.firstMinute
}

// weight is what MeanSeconds has come to once so much time counted.
func (r *rules) weight(counted time.Duration) float64 {
	return r.meanDecay.Seconds() * -math.Expm1(-counted.Seconds()/r.meanDecay.Seconds())
}

// state is what a share stands for.
func (r *rules) state(share float32) DrivingState {
	switch {
	case share <= r.jam:
		return TrafficJam
	case share <= r.slow:
		return SlowDriving
	}
	return NormalDriving
}

// share measures how traffic around the car moves at t, relative to light traffic,
// and reports whether other cars told it.
func (s *State) share(r *rules, t UnixMilli) (road bool) {
	m, a := &s.Traffic, &s.Road
	m.FreeKmh, m.Source = s.freeFlow(r, t)
	own := float32(1)
	if m.MeanSeconds > 0 {
		own = s.MeanSpeed / m.FreeKmh
	}
	m.Share = own
	if !s.seenByOthers(t) {
		return false
	}
	// The delays are relative to the road's own free flow, which may not be the best
	// known where it is young.
	scale := m.FreeKmh / a.FreeKmh
	behind := 1 / max(own, leastShare)
	if a.DelayBehind > 0 {
		others := r.others * a.ShownBehind
		behind = others*a.DelayBehind*scale + (1-others)*behind
	}
	free, present := a.FreeSecondsBehind, a.FreeSecondsBehind*behind
	if a.DelayAhead > 0 {
		free += a.FreeSecondsAhead
		present += a.FreeSecondsAhead * a.DelayAhead * scale
	}
	m.Share = free / present
	return true
}

// seenByOthers reports whether enough other cars show how traffic moves at t.
func (s *State) seenByOthers(t UnixMilli) bool {
	return s.knowsRoad(t) && (s.Road.DelayBehind > 0 || s.Road.DelayAhead > 0)
}

// leastShare keeps a standstill finite.
const leastShare = 0.01

// freeFlow is the speed that the car's road allows at t when traffic is light, and
// where that is known from.
func (s *State) freeFlow(r *rules, t UnixMilli) (float32, FreeFlowSource) {
	shown := max(r.street, min(r.perCruise*s.Traffic.Cruise, r.mostAssumed))
	switch {
	case s.knowsRoad(t) && !s.Road.Young:
		return s.Road.FreeKmh, FreeFlowOfRoad
	case s.knowsFreeFlow(t):
		return max(r.leastFree, min(s.Latest[FreeFlowSpeed].Value, r.mostFree)), FreeFlowSent
	case s.knowsRoad(t):
		return s.Road.FreeKmh, FreeFlowOfRoad
	case shown > r.street:
		return shown, FreeFlowShown
	}
	return r.street, FreeFlowOfStreet
}

// knowsRoad reports whether the free flow of the road at t is known from a fix.
func (s *State) knowsRoad(t UnixMilli) bool {
	return s.Road.FreeKmh > 0 && t.Sub(s.Road.Time) <= roadHolds
}

// knowsFreeFlow reports whether a free-flow speed of the road at t was read.
func (s *State) knowsFreeFlow(t UnixMilli) bool {
	f := s.Latest[FreeFlowSpeed]
	return f.Value > 0 && t.Sub(f.Time) <= freeFlowHolds
}

// roadTime is the time of the newest reading, besides the speed, that a verdict at
// t rests on; t if there is none.
func (s *State) roadTime(t UnixMilli) UnixMilli {
	if s.knowsRoad(t) {
		t = min(t, s.Road.Time)
	}
	if _, source := s.freeFlow(&standardRules, t); source == FreeFlowSent {
		t = min(t, s.Latest[FreeFlowSpeed].Time)
	}
	return t
}
