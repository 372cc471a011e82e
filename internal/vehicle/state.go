package vehicle

import (
	"slices"
	"time"

	"example.org/carstate/internal/signal"
)

// State is all that the service remembers of one vehicle, of a fixed size. The zero State has never
// reported.
type State struct {
	Time signal.UnixMilli
	// An "ignition off" that a later motion disproves keeps its time, and becomes
	// [signal.IgnitionUndefined].
	Latest signal.Latest
	// FaultCode is a throttle code until the lists have been without one for long enough.
	FaultCode signal.TroubleCode
	// MeanSpeed has a time constant of one minute (see stopCounts).
	MeanSpeed float32
	// Pace is zero until a speed was read.
	Pace         DrivingState
	Traffic      TrafficMemory
	Way          Way // zero for a car that sends no position
	Road         RoadAround
	RestingSince signal.UnixMilli
	// The throttle rules run when a sample with a later time arrives.
	ThrottleMemory ThrottleMemory
}

// Fold folds one sample, without an allocation. A reading changes nothing if it is
// older than the newest of its group, or if its signal was already read at that time; but of
// several lists of trouble codes, the first with a throttle code is kept.
func (s *State) Fold(x *Sample) (changed bool) {
	t, r := x.Time, x.Readings // only those that are used
	throttleNext := s.Latest.Select(&r, t, s.Latest[signal.DTCList].Time == t && s.addsCode(x))
	if r.Empty() || t == 0 {
		return false
	}

	if r.Has(signal.DTCList) && slices.Contains(x.Codes, signal.TroubleCode{}) {
		s.relearn(t)
		return true
	}
	if throttleNext {
		s.ThrottleMemory.runRules(s)
	}
	if t > s.Time {
		s.holdSpeed()
	}
	s.observeThrottle(&r, t)
	before := signal.Reading{Value: s.Traffic.Kmh, Time: s.Traffic.At}
	parked := s.Driving().NotDriving
	// The speed rule needs the previous speed.
	s.observeMotion(&r, t)
	s.Time = max(s.Time, t)
	s.Latest.Update(&r, t)
	s.observeCodes(&r)
	s.observeIgnition(before)
	s.observeRest(before)
	if v := s.Driving(); parked && v.State != 0 {
		// The car may have been silent since it parked, and may be on another road.
		s.Traffic.Start, s.Traffic.Cruise = t, 0
	}
	return true
}

func Observe(s State, x Sample) State {
	s.Fold(&x)
	return s
}

type Outcome uint8

const (
	Answered Outcome = iota
	Unknown          // no reading that could answer was ever received
	Stale
	NotDriving
)

func (o Outcome) String() string {
	return [...]string{"", "unknown", "stale", "not_driving"}[o]
}

// MaxAhead is how far a verdict may be ahead of the clock: ingest accepts 30 s, and the clocks of
// two nodes may differ by another 30 s. If it is further ahead, a clock was wrong, so its age is
// unknown.
const MaxAhead = time.Minute

func fresh(t, now signal.UnixMilli, maxAge time.Duration) Outcome {
	switch {
	case t == 0:
		return Unknown
	case maxAge > 0 && (now.Sub(t) > maxAge || t.Sub(now) > MaxAhead):
		return Stale
	}
	return Answered
}
