package vehicle

import "time"

// State is all that the service remembers of one vehicle: the latest reading of
// each signal and what the rules carry from one sample to the next. Its size
// does not depend on how long or how often the vehicle reports. The zero State
// is a vehicle that has never reported.
type State struct {
	// Time is the newest event time seen.
	Time UnixMilli
	// Latest holds the newest reading of each signal. An "ignition off" that
	// the car's motion has disproved keeps its time and becomes
	// [IgnitionUndefined].
	Latest [NumSignals]Reading
	// FaultCode is the first throttle code in the latest DTCList that held one;
	// zero if none ever did, or the lists have been without for a while.
	FaultCode TroubleCode
	// MeanSpeed is the time-decayed mean speed of about the last minute in km/h;
	// long stops count in part.
	MeanSpeed float32
	// Pace is the driving state that Traffic stands for. Zero until a speed was read.
	Pace DrivingState
	// Traffic is what the driving rules remember of this drive.
	Traffic TrafficMemory
	// Way is where the car came from, Road what is known of the roads there. Both are
	// zero for a car that sends no position.
	Way  Way
	Road RoadAround
	// RestingSince is when the car was first seen standing with its engine
	// off, without a reading to the contrary since. Zero if it is not.
	RestingSince UnixMilli
	// ThrottleMemory is what the throttle rules remember. Readings of Time
	// itself are judged when the next time begins, so that they may come in
	// pieces.
	ThrottleMemory ThrottleMemory
}

// Reading is one signal's value, in the signal's unit, at the time it was read.
// A zero Time means that the signal was never read.
type Reading struct {
	Value float32
	Time  UnixMilli
}

// Observe folds one sample into the state of its vehicle and returns the next
// state. Samples are ordered by event time: one that is older than what is
// known changes nothing, and neither does the same one twice. A sample of the
// same time may add signals that were not read at that time before; of two
// readings of one signal at one time the first counts. A sample without a time
// changes nothing. It costs no allocation.
func Observe(s State, x Sample) State { return observe(&standardRules, s, x) }

func observe(rules *rules, s State, x Sample) State {
	if x.Time < s.Time {
		return s
	}
	r := &x.Readings
	fresh := r.present
	for i := range s.Latest {
		if s.Latest[i].Time == x.Time || !Signal(i).holds(float64(r.value[i])) {
			fresh &^= 1 << i
		}
	}
	if fresh == 0 {
		return s
	}
	has := func(g Signal) bool { return fresh&(1<<g) != 0 }

	if x.Time > s.Time {
		s.ThrottleMemory.judge(&s)
	}
	s.observeThrottle(r, fresh, x.Time)
	before, _ := s.speed()
	parked := s.Driving().NotDriving
	// The speed rule looks back at the previous speed, so it runs before the
	// latest readings are replaced.
	if g, ok := speedOf(has); ok {
		s.observeSpeed(rules, r.value[g], x.Time)
	}
	s.Time = x.Time
	for i := range s.Latest {
		if g := Signal(i); has(g) {
			s.Latest[i] = Reading{r.value[g], x.Time}
		}
	}
	s.observeCodes(has(DTCList), r.Codes)
	s.observeIgnition()
	s.observeRest(before)
	if v := s.Driving(); parked && v.State != 0 {
		// It may have been silent since it parked, and is on another road.
		s.Traffic.Start, s.Traffic.Cruise = x.Time, 0
	}
	return s
}

// observeCodes takes in a list of trouble codes, if one came. A code that was cleared
// may return: the anomaly ends when the newest lists have been without for a minute.
func (s *State) observeCodes(listed bool, codes []TroubleCode) {
	gone := &s.ThrottleMemory.CodeGone
	if listed {
		if c := firstThrottleCode(codes); c != (TroubleCode{}) {
			s.FaultCode, *gone = c, 0
		} else if s.FaultCode != (TroubleCode{}) && *gone == 0 {
			*gone = s.Time
		}
	}
	if *gone != 0 && s.Time-*gone >= UnixMilli(codeGoneFor.Milliseconds()) {
		s.FaultCode, *gone = TroubleCode{}, 0
	}
}

func firstThrottleCode(codes []TroubleCode) TroubleCode {
	for _, c := range codes {
		if c.IsThrottle() {
			return c
		}
	}
	return TroubleCode{}
}

// Outcome says whether a verdict answers a question asked at some time, and if
// not, why.
type Outcome uint8

// Outcomes of a question.
const (
	Answered   Outcome = iota
	Unknown            // nothing was ever read that could answer it
	Stale              // what was read is older than the asker accepts
	NotDriving         // the car stands with its engine or ignition off
)

// String returns the outcome as the wire spells it: "", "unknown", "stale",
// "not_driving".
func (o Outcome) String() string {
	return [...]string{"", "unknown", "stale", "not_driving"}[o]
}

// MaxAhead is how far the time of a verdict may be ahead of the clock of whoever is
// asked: samples are taken in that are 30 s ahead, and two nodes' clocks may be as
// much apart. What is further ahead was made while a clock was wrong, and how old
// it is nobody knows.
const MaxAhead = time.Minute

// fresh judges the age of a verdict made at t for a question asked at now. A
// maxAge of zero or less accepts any age.
func fresh(t, now UnixMilli, maxAge time.Duration) Outcome {
	switch {
	case t == 0:
		return Unknown
	case maxAge > 0 && (now.Sub(t) > maxAge || t.Sub(now) > MaxAhead):
		return Stale
	}
	return Answered
}
