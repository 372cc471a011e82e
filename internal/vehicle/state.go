package vehicle

import (
	"slices"
	"time"
)

// State is everything that the service remembers of one vehicle: the latest reading of each
// signal, and the memory of the rules between samples. Its size is fixed, however long and
// however often the vehicle reports. The zero State is a vehicle that has never reported.
type State struct {
	// Time is the newest event time seen.
	Time UnixMilli
	// Latest holds the newest reading of each signal. An "ignition off" is disproved if the car
	// moves later. Its reading then keeps its time, and its value becomes [IgnitionUndefined].
	Latest [NumSignals]Reading
	// FaultCode is a trouble code of the throttle system, or zero if there is none. It is the first
	// such code in the newest list of trouble codes that had one. It becomes zero again when the
	// lists have been without such a code for long enough (observeCodes).
	FaultCode TroubleCode
	// MeanSpeed is the car's exponentially weighted mean speed, in km/h, with a time constant of
	// one minute. Of a long stop, the mean includes only the first 30 s and the time after two
	// minutes.
	MeanSpeed float32
	// Pace is the driving state that the driving rules concluded from the readings. It is zero
	// until a speed was read.
	Pace DrivingState
	// Traffic is the memory of the driving rules for the current drive.
	Traffic TrafficMemory
	// Way is the list of the stretches that the car drove last. Road is what is known of the road
	// behind and ahead of the car. Both are zero for a car that sends no position.
	Way  Way
	Road RoadAround
	// RestingSince is when the car was first seen stationary with its engine off. It is zero if
	// the car is not at rest, that is, if a later reading showed motion or a running engine.
	RestingSince UnixMilli
	// ThrottleMemory is the memory of the throttle rules. The rules run over the readings of the
	// newest time only when a sample with a later time arrives.
	ThrottleMemory ThrottleMemory
}

// Reading is one signal's value, in the signal's unit, and the time at which it was read. A
// zero Time means that the signal was never read.
type Reading struct {
	Value float32
	Time  UnixMilli
}

// Fold folds one sample into the state of its vehicle, and reports whether the state changed. The
// readings of a sample are ordered by groups: those of the car's motion, its position, and its
// throttle system may come from different senders, or with different delays. A reading changes
// nothing if its time is before the newest reading of its group. If the two times are equal, the
// sample adds the signals that were not yet read at that time. For a signal that was already read at
// that time, the first reading is kept, so a repeated sample changes nothing. But of several lists
// of trouble codes, the first with a throttle code is kept. A value that no sensor can report is
// ignored. Fold allocates nothing.
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
	// The speed rule needs the previous speed, so it runs before the latest readings are replaced.
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

// Observe returns the state after a sample, and leaves s unchanged. [State.Fold] changes the state
// in place.
func Observe(s State, x Sample) State {
	s.Fold(&x)
	return s
}

// Outcome says whether a verdict answers a client's question, and if it does not, why.
type Outcome uint8

// Outcomes of a question.
const (
	Answered   Outcome = iota
	Unknown            // no reading that could answer the question was ever received
	Stale              // the readings are older than the caller accepts
	NotDriving         // the car is not being driven, as in DrivingVerdict.NotDriving
)

// String returns the outcome as it is sent to clients: "", "unknown", "stale", "not_driving".
func (o Outcome) String() string {
	return [...]string{"", "unknown", "stale", "not_driving"}[o]
}

// MaxAhead is how far the time of a verdict may be ahead of the clock of the node that is asked.
// Ingest accepts samples that are 30 s ahead, and the clocks of two nodes may differ by another 30
// s. A verdict further ahead was made while a clock was wrong, so its age is unknown.
const MaxAhead = time.Minute

// fresh returns the outcome that [ThrottleVerdict.At] describes, for a verdict of the time t.
func fresh(t, now UnixMilli, maxAge time.Duration) Outcome {
	switch {
	case t == 0:
		return Unknown
	case maxAge > 0 && (now.Sub(t) > maxAge || t.Sub(now) > MaxAhead):
		return Stale
	}
	return Answered
}
