package driving

import (
	"math"
	"time"

	"example.org/carstate/internal/signal"
)

type Traffic struct {
	Kmh            float32 // the newest known speed: as read, or as the positions show it
	At             signal.UnixMilli
	Start, Changed signal.UnixMilli // Changed is when Pace last changed in this drive, or zero.
	Share, FreeKmh float32
	MeanSeconds    float32 // the weight of MeanSpeed
	Stop           float32 // seconds of the present stop, at most longStop
	Rolled         float32 // metres driven since the stop, up to moveUp
	TopKmh         float32 // the highest speed of the last topHolds
	TopAt          signal.UnixMilli
	Cruise         float32 // mean of the speeds above cruiseFromKmh; zero if there were none in this drive
	Source         FreeFlowSource
	Moved          bool
	EngineMute     bool             // The engine speed was 0 in motion: it shows nothing.
	Stood          signal.UnixMilli // since when the car is stationary, or zero
	Repeats        uint8            // speeds that equalled the one before: a source that sends changes only has none
}

// FreeFlowSource says how a free flow is known, the best last.
type FreeFlowSource uint8

const (
	FreeFlowOfStreet FreeFlowSource = iota // assumed, because nothing is known
	FreeFlowShown
	FreeFlowSent
	FreeFlowOfRoad
	NumFreeFlowSources
)

func (f FreeFlowSource) String() string {
	return [...]string{"street", "shown", "sent", "road"}[f]
}

// Observe needs the previous readings in Latest. The positions replace a speed that they refute or
// that is missing for speedHolds, and show the speed between two sparse readings.
func (c Car) Observe(r *signal.Readings, t signal.UnixMilli) {
	m := &c.Traffic
	if t < m.At {
		return
	}
	kmh, read := r.Speed()
	last, _ := c.Latest.Speed()
	if read && last.Time != 0 && kmh == last.Value {
		m.Repeats = max(m.Repeats, m.Repeats+1)
	}
	shown, shows := c.Way.shownKmh()
	shows = shows && c.Way.Time == t
	switch since := t.Sub(m.At); {
	case read && !c.Way.Distrusted && since > sparse && shows:
		mean := max(shown, min(m.Kmh, kmh)) // a winding way is longer than the line
		c.drive(kmh, mean, mean, t)
	case read && !c.Way.Distrusted && since > maxStep && m.At != 0 && since <= signal.NewDrive:
		// The car may have been anywhere since: the reading is one sample of its speed.
		m.Kmh, m.At, m.Stop = kmh, t.Add(-sampleCounts), 0
		c.drive(kmh, kmh, kmh, t)
	case read && !c.Way.Distrusted:
		c.drive(kmh, m.Kmh, kmh, t)
	case shows && (c.Way.Distrusted || t.Sub(last.Time) > speedHolds):
		c.drive(shown, shown, shown, t)
	}
}

// HoldSpeed repeats the newest speed if the source seems to send changes only. If SpeedHolds was
// read with it, that alone decides.
func (c Car) HoldSpeed(now signal.UnixMilli) {
	m := &c.Traffic
	last, ok := c.Latest.Speed()
	holds, since := unchangedHolds, now.Sub(m.At)
	if given := c.Latest[signal.SpeedHolds]; given.Time != 0 && given.Time == last.Time {
		holds = time.Duration(given.Value) * time.Second
	} else if m.Repeats != 0 || since > maxStep {
		return
	}
	if !ok || c.Way.Distrusted || since <= unchangedAfter || now.Sub(last.Time) > holds {
		return
	}
	before := signal.Reading{Value: m.Kmh, Time: m.At}
	c.drive(last.Value, last.Value, last.Value, now)
	c.observeRest(before)
}

// drive folds the speed kmh at t. Since m.At, the speed is taken as linear between from and to.
func (c Car) drive(kmh, from, to float32, t signal.UnixMilli) {
	m := &c.Traffic
	step := t.Sub(m.At)
	switch {
	case m.At == 0 || step > signal.NewDrive:
		c.startDrive(kmh, t)
		m.Moved = kmh > signal.MovingKmh
	case step > 0:
		seconds, left := float32(step.Seconds()), m.Cruise > 0
		c.collect(from, to, seconds)
		if c.Pace != Jam { // in a jam, Cruise keeps the speed from before the jam
			m.cruise(from, to, seconds)
		}
		if !left && m.Cruise > 0 { // the mean so far is of the way out of a car park
			c.MeanSpeed, m.MeanSeconds = kmh, 0
		}
	}
	m.Kmh, m.At = kmh, t
	if kmh >= m.TopKmh || t.Sub(m.TopAt) > topHolds {
		m.TopKmh, m.TopAt = kmh, t
	}
	c.setPace(t)
}

func (c Car) startDrive(kmh float32, t signal.UnixMilli) {
	c.Traffic = Traffic{Start: t, Kmh: kmh, At: t, Repeats: c.Traffic.Repeats}
	c.MeanSpeed, c.Pace = kmh, Normal
}

// collect adds a linear change of speed to the mean, which then does not depend on how often a car
// reports.
func (c Car) collect(from, to, seconds float32) {
	c.Traffic.Moved = c.Traffic.Moved || to > signal.MovingKmh
	stops, starts := to < stopKmh, from < stopKmh
	if starts && stops {
		c.addStop((from+to)/2, seconds)
		return
	}
	if starts {
		ramp := min(seconds, (to-from)/rampKmhPerSecond)
		slow := ramp * below(from, to, stopKmh)
		c.addStop(from, seconds-ramp)
		c.addStop((from+stopKmh)/2, slow)
		from, seconds = stopKmh, ramp-slow
	}
	if !stops {
		c.addDrive(from, to, seconds)
		return
	}
	ramp := min(seconds, (from-to)/rampKmhPerSecond)
	slow := ramp * below(from, to, stopKmh)
	c.addDrive(from, stopKmh, ramp-slow)
	c.addStop((stopKmh+to)/2, slow)
	c.addStop(to, seconds-ramp)
}

func (c Car) addStop(kmh, seconds float32) {
	m := &c.Traffic
	until := m.Stop + seconds
	counts := min(until, stopCounts) - min(m.Stop, stopCounts) + max(until, longStop) - max(m.Stop, longStop)
	m.Stop, m.Rolled = min(until, longStop), 0
	if m.Moved { // otherwise the car idles where it was parked
		c.addToMean(kmh, kmh, counts)
	}
}

func (c Car) addDrive(from, to, seconds float32) {
	if seconds <= 0 {
		return
	}
	m := &c.Traffic
	if m.Stop > 0 && m.Rolled < moveUp {
		rolls := timeFor(moveUp-m.Rolled, from, to, seconds)
		at := from + (to-from)*rolls/seconds
		rolled := m.Rolled + (from+at)/2*rolls/3.6
		c.addStop((from+at)/2, rolls)
		m.Rolled = rolled
		if rolls >= seconds {
			return
		}
		from, seconds = at, seconds-rolls
	}
	m.Stop = 0
	c.addToMean(from, to, seconds)
}

// addToMean adds a linear change of speed to MeanSpeed. With τ = meanDecay, m the old mean, w its
// MeanSeconds and v(u) the speed after u of the t seconds, the new mean is
//
// (m·w·e^(-t/τ) + ∫₀ᵗ v(u)·e^(-(t-u)/τ) du) / (w·e^(-t/τ) + τ·(1-e^(-t/τ))),
//
// whatever the number of steps.
func (c Car) addToMean(from, to, seconds float32) {
	if seconds <= 0 {
		return
	}
	decay, t := meanDecay.Seconds(), float64(seconds)
	kept := math.Exp(-t / decay)
	weight := decay * (1 - kept)
	sum := float64(to)*weight - float64(to-from)/t*decay*(weight-t*kept)
	was := float64(c.Traffic.MeanSeconds) * kept
	c.MeanSpeed = float32(max(0, (float64(c.MeanSpeed)*was+sum)/(was+weight)))
	c.Traffic.MeanSeconds = float32(was + weight)
}

// timeFor returns after how many seconds of a linear change the car has driven the metres, at most
// seconds.
func timeFor(metres, from, to, seconds float32) float32 {
	v, change := from/3.6, (to-from)/3.6
	root := v*v + 2*change/seconds*metres
	if root < 0 {
		return seconds // the car stops before that
	}
	// This form of the solution is valid at any acceleration, zero included.
	return min(seconds, 2*metres/(v+float32(math.Sqrt(float64(root)))))
}

func (m *Traffic) cruise(from, to, seconds float32) {
	above := 1 - below(from, to, cruiseFromKmh)
	if above == 0 {
		return
	}
	kmh := min((max(from, cruiseFromKmh)+max(to, cruiseFromKmh))/2, mostAssumed/perCruise)
	if m.Cruise == 0 {
		m.Cruise = kmh
	}
	m.Cruise += float32(-math.Expm1(-float64(above*seconds)/cruiseDecay.Seconds())) * (kmh - m.Cruise)
}

// below returns the part of a linear speed change that is below limit.
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

func (c Car) setPace(t signal.UnixMilli) {
	m := &c.Traffic
	road := c.share(t)
	want := StateOfShare(m.Share)
	if m.Changed != 0 && t.Sub(m.Changed) < paceHolds {
		if want < c.Pace {
			want = min(c.Pace, StateOfShare(m.Share/clearBy))
		} else {
			want = max(c.Pace, StateOfShare(m.Share*clearBy))
		}
	}
	if !road && c.knowsRoad(t) {
		// The car is alone: its stops say little of traffic if it reaches the road's speed between
		// them.
		want = min(want, StateOfShare(m.TopKmh*perCruise/m.FreeKmh))
	}
	if !road && c.isTooYoung(want, t) {
		want = c.Pace
	}
	if want != c.Pace {
		c.Pace, m.Changed = want, t
	}
}

func (c Car) isTooYoung(want State, t signal.UnixMilli) bool {
	m := &c.Traffic
	if want > Normal && c.Way.Time != 0 && !c.Way.OnRoad {
		return true
	}
	counted := paceAfter
	if m.Cruise == 0 {
		counted = paceAfterPark
	}
	return want > Normal && float64(m.MeanSeconds) < weight(counted) || want == Jam && t.Sub(m.Start) < firstMinute
}

// weight returns the MeanSeconds of a mean that covers only counted.
func weight(counted time.Duration) float64 {
	return meanDecay.Seconds() * -math.Expm1(-counted.Seconds()/meanDecay.Seconds())
}

// share computes Share at t: the car's own mean speed divided by the free flow, or if others show
// the traffic (road), the free travel time divided by the present one, just behind and ahead.
// Ahead, only the others' delay counts. Behind, theirs has the weight othersWeight times the share of
// that road which they show, and the car's own delay has the rest.
func (c Car) share(t signal.UnixMilli) (road bool) {
	m, a := &c.Traffic, &c.Road
	m.FreeKmh, m.Source = c.freeFlow(t)
	own := float32(1)
	if m.MeanSeconds > 0 {
		own = c.MeanSpeed / m.FreeKmh
	}
	m.Share = own
	if !c.seenByOthers(t) {
		return false
	}
	// The delays are relative to a.FreeKmh, which differs from m.FreeKmh if it is a guess and a
	// better value is known.
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

func (c Car) seenByOthers(t signal.UnixMilli) bool {
	return c.knowsRoad(t) && (c.Road.DelayBehind > 0 || c.Road.DelayAhead > 0)
}

// freeFlow returns the best known value. The road's, if Young, is a guess.
func (c Car) freeFlow(t signal.UnixMilli) (float32, FreeFlowSource) {
	shown, sent := max(streetKmh, min(perCruise*c.Traffic.Cruise, mostAssumed)), c.Latest[signal.FreeFlowSpeed]
	switch {
	case c.knowsRoad(t) && c.Road.Apart >= apartFrom && shown > streetKmh && shown < c.Road.FreeKmh:
		return shown, FreeFlowShown // the free flow may be that of other lanes
	case c.knowsRoad(t) && !c.Road.Young:
		return c.Road.FreeKmh, FreeFlowOfRoad
	case sent.Value > 0 && t.Sub(sent.Time) <= freeFlowHolds:
		return max(leastFree, min(sent.Value, mostFree)), FreeFlowSent
	case c.knowsRoad(t):
		return c.Road.FreeKmh, FreeFlowOfRoad
	case shown > streetKmh:
		return shown, FreeFlowShown
	}
	return streetKmh, FreeFlowOfStreet
}

func (c Car) knowsRoad(t signal.UnixMilli) bool {
	return c.Road.FreeKmh > 0 && t.Sub(c.Road.Time) <= roadHolds
}

func (c Car) roadTime(t signal.UnixMilli) signal.UnixMilli {
	if c.knowsRoad(t) {
		t = min(t, c.Road.Time)
	}
	if _, source := c.freeFlow(t); source == FreeFlowSent {
		t = min(t, c.Latest[signal.FreeFlowSpeed].Time)
	}
	return t
}
