package vehicle

import (
	"math"
	"time"
)

// DrivingState says how a car drives. The values are those of the wire.
type DrivingState uint8

// The driving states. Zero is no state.
const (
	NormalDriving DrivingState = 1
	SlowDriving   DrivingState = 2
	TrafficJam    DrivingState = 3
)

// String names the state for people.
func (d DrivingState) String() string {
	switch d {
	case NormalDriving:
		return "normal driving"
	case SlowDriving:
		return "slow driving"
	case TrafficJam:
		return "traffic jam"
	}
	return "none"
}

// Thresholds of the driving rule. Speeds in km/h.
const (
	// meanSpeedDecay is the time constant of the mean: a minute ago weighs
	// e^-0.5 of now. About two minutes outlast a red light.
	meanSpeedDecay = 120 * time.Second
	// startSpeed is the mean that a drive starts with, so that it starts in
	// "normal" and needs minutes of evidence for anything else.
	startSpeed = 40
	jamBelow   = 15
	jamUntil   = 18 // a jam ends above this: hysteresis
	slowBelow  = 25
	slowUntil  = 28 // slow driving ends above this
	// maxStep is the longest time between two speeds that counts as driving
	// at their mean. A longer gap is not evidence of anything.
	maxStep = 75 * time.Second
	// newDrive is a silence after which the old mean says nothing more.
	newDrive = 10 * time.Minute
	// moving is the speed above which a car is certainly under way.
	moving = 3
	// restAfter is how long a car stands with its engine off until it is
	// parked rather than waiting (start-stop systems idle for minutes).
	restAfter = 5 * time.Minute
	// ignitionHolds is how long "ignition on" outweighs a resting engine.
	ignitionHolds = time.Hour
	// coasting is how long a car may roll after its ignition went off. One
	// that moves later has it on, and the message that said so was lost.
	coasting = 30 * time.Second
)

// DrivingVerdict is how a car drives, judged at the time of its readings.
type DrivingVerdict struct {
	// State is 0 if nothing is known or the car is not driving.
	State DrivingState
	// NotDriving is set when the car stands with its ignition or engine off.
	NotDriving bool
	// Time is the oldest among the newest readings of the signals used;
	// zero if there is no verdict.
	Time UnixMilli
}

// At says whether the verdict answers a question asked at now, when readings
// may be at most maxAge old (zero or less: any age).
func (v DrivingVerdict) At(now UnixMilli, maxAge time.Duration) Outcome {
	if o := fresh(v.Time, now, maxAge); o != Answered {
		return o
	}
	if v.NotDriving {
		return NotDriving
	}
	return Answered
}

// Driving returns the driving verdict. It uses the newest speed reading; one is
// enough. "Not driving" uses the newest reading that shows it.
func (s *State) Driving() DrivingVerdict {
	speed, ok := s.speed()
	if s.ignitionOff() {
		return DrivingVerdict{NotDriving: true, Time: max(s.Latest[LowVoltageSystemState].Time, speed.Time)}
	}
	if !ok {
		return DrivingVerdict{}
	}
	if s.resting() {
		return DrivingVerdict{NotDriving: true, Time: speed.Time}
	}
	return DrivingVerdict{State: s.Pace, Time: speed.Time}
}

// speedOf picks the speed signal to use: the car's own over OBD's.
func speedOf(has func(Signal) bool) (Signal, bool) {
	if has(Speed) {
		return Speed, true
	}
	return OBDSpeed, has(OBDSpeed)
}

// speed returns the newest speed reading, the car's own where both are as new.
func (s *State) speed() (Reading, bool) {
	r := s.Latest[Speed]
	if o := s.Latest[OBDSpeed]; o.Time > r.Time {
		r = o
	}
	return r, r.Time != 0
}

// observeSpeed updates the mean with a speed read at t.
func (s *State) observeSpeed(kmh float32, t UnixMilli) {
	prev, ok := s.speed()
	step := t.Sub(prev.Time)
	switch {
	case !ok || step > newDrive:
		s.MeanSpeed, s.Pace = startSpeed, NormalDriving
	case step > 0 && step <= maxStep:
		over := (prev.Value + kmh) / 2
		weight := float32(-math.Expm1(-step.Seconds() / meanSpeedDecay.Seconds()))
		s.MeanSpeed += weight * (over - s.MeanSpeed)
	}
	s.Pace = pace(s.Pace, s.MeanSpeed)
}

// pace applies the thresholds with hysteresis.
func pace(was DrivingState, mean float32) DrivingState {
	jam, slow := float32(jamBelow), float32(slowBelow)
	if was == TrafficJam {
		jam = jamUntil
	}
	if was != NormalDriving {
		slow = slowUntil
	}
	switch {
	case mean < jam:
		return TrafficJam
	case mean < slow:
		return SlowDriving
	}
	return NormalDriving
}

// observeRest keeps RestingSince, and forgets the drive's mean once the drive
// is over, so that the next one starts in "normal".
func (s *State) observeRest() {
	speed, ok := s.speed()
	engine := s.Latest[EngineSpeed]
	if !ok || speed.Value > moving || engine.Time == 0 || engine.Value > 0 {
		s.RestingSince = 0
	} else if s.RestingSince == 0 {
		s.RestingSince = max(speed.Time, engine.Time)
	}
	if ok && (s.ignitionOff() || s.resting()) {
		s.MeanSpeed, s.Pace = startSpeed, NormalDriving
	}
}

// observeIgnition drops an "ignition off" that the car's motion disproves.
func (s *State) observeIgnition() {
	i := &s.Latest[LowVoltageSystemState]
	speed, _ := s.speed()
	if !Ignition(i.Value).On() && speed.Value > moving && speed.Time.Sub(i.Time) > coasting {
		i.Value = float32(IgnitionUndefined)
	}
}

// ignitionOff reports whether the car says that its ignition is off and has not
// been seen moving since.
func (s *State) ignitionOff() bool {
	i := s.Latest[LowVoltageSystemState]
	if k := Ignition(i.Value); k == IgnitionUndefined || k.On() {
		return false
	}
	speed, _ := s.speed()
	return speed.Time <= i.Time || speed.Value <= moving
}

// resting reports whether the car has stood with its engine off for long and
// no recent "ignition on" contradicts, both at the time of its newest speed: a
// car that is silent, or reports other things, has not been seen resting.
func (s *State) resting() bool {
	speed, _ := s.speed()
	if s.RestingSince == 0 || speed.Time.Sub(s.RestingSince) < restAfter {
		return false
	}
	i := s.Latest[LowVoltageSystemState]
	return !Ignition(i.Value).On() || speed.Time.Sub(i.Time) > ignitionHolds
}
