package vehicle

import (
	"slices"
	"time"
)

// State is everything that the service remembers of one vehicle. Its size is fixed. The zero State
// is a vehicle that has never reported.
type State struct {
	// Time is the newest event time seen.
	Time UnixMilli
	// Latest holds the newest reading of each signal. An "ignition off" that a later motion
	// disproves keeps its time, and its value becomes [IgnitionUndefined].
	Latest [NumSignals]Reading
	// FaultCode is the first throttle code of the newest list that had one, until the lists have
	// been without one for long enough (observeCodes).
	FaultCode TroubleCode
	// MeanSpeed is an exponentially weighted mean in km/h, with a time constant of one minute. Of a
	// long stop it has only the first 30 s and the time after two minutes.
	MeanSpeed float32
	// Pace is the state that the driving rules concluded; zero until a speed was read.
	Pace    DrivingState
	Traffic TrafficMemory
	// Way and Road are zero for a car that sends no position.
	Way  Way
	Road RoadAround
	// RestingSince is when the car was first seen stationary with its engine off; zero if it is
	// not.
	RestingSince UnixMilli
	// The throttle rules run over the readings of a time when a sample with a later time arrives.
	ThrottleMemory ThrottleMemory
}

// A zero Time means that the signal was never read.
type Reading struct {
	Value float32
	Time  UnixMilli
}

// Fold folds one sample into the state of its vehicle. A reading changes nothing if it is older
// than the newest of its group, or if its signal was already read at that time, so a repeated
// sample changes nothing; but of several lists of trouble codes of one time, the first with a
// throttle code is kept. An impossible value is ignored. Fold allocates nothing.
func (s *State) Fold(x *Sample) (changed bool) {
	t, r := x.Time, x.Readings // only those that are used
	newest := s.newest()
	for i := range s.Latest {
		known := s.Latest[i].Time == t && !(Signal(i) == DTCList && s.addsCode(x))
		if known || t < newest[groupOf[i]] || !Signal(i).holds(float64(r.value[i])) {
			r.present &^= 1 << i
		}
	}
	if r.Empty() || t == 0 {
		return false
	}

	if r.Has(DTCList) && slices.Contains(x.Codes, TroubleCode{}) {
		s.relearn(t)
		return true
	}
	if t > newest[throttleGroup] {
		s.ThrottleMemory.runRules(s)
	}
	if t > s.Time {
		s.holdSpeed()
	}
	s.observeThrottle(&r, t)
	before := Reading{s.Traffic.Kmh, s.Traffic.At}
	parked := s.Driving().NotDriving
	// The speed rule needs the previous speed.
	s.observeMotion(&r, t)
	s.Time = max(s.Time, t)
	for i := range s.Latest {
		if v, ok := r.Value(Signal(i)); ok {
			s.Latest[i] = Reading{v, t}
		}
	}
	s.observeCodes(&r)
	s.observeIgnition(before)
	s.observeRest(before)
	if v := s.Driving(); parked && v.State != 0 {
		// The car may have been silent since it parked, and may be on another road.
		s.Traffic.Start, s.Traffic.Cruise = t, 0
	}
	return true
}

// Observe is [State.Fold] for a copy.
func Observe(s State, x Sample) State {
	s.Fold(&x)
	return s
}

// Outcome says whether a verdict answers a client's question, and if it does not, why.
type Outcome uint8

const (
	Answered Outcome = iota
	Unknown          // no reading that could answer was ever received
	Stale
	NotDriving // as DrivingVerdict.NotDriving
)

// String returns the outcome as it is sent to clients.
func (o Outcome) String() string {
	return [...]string{"", "unknown", "stale", "not_driving"}[o]
}

// MaxAhead is how far a verdict may be ahead of the clock of the node that is asked: ingest accepts
// samples 30 s ahead, and the clocks of two nodes may differ by another 30 s. A verdict further
// ahead was made while a clock was wrong, so its age is unknown.
const MaxAhead = time.Minute

func fresh(t, now UnixMilli, maxAge time.Duration) Outcome {
	switch {
	case t == 0:
		return Unknown
	case maxAge > 0 && (now.Sub(t) > maxAge || t.Sub(now) > MaxAhead):
		return Stale
	}
	return Answered
}
