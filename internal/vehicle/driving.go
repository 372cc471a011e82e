package vehicle

import "time"

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
// enough. A fix counts too where the road is known, and else a free-flow speed that
// its source sent, while it is fresh. "Not driving" uses the
// ignition, or speed and engine speed, or a long standstill alone.
func (s *State) Driving() DrivingVerdict {
	speed, ok := s.speed()
	if s.ignitionOff() {
		// It stands by itself: an older speed is not used, a newer one only confirms.
		return DrivingVerdict{NotDriving: true, Time: s.Latest[LowVoltageSystemState].Time}
	}
	if !ok {
		return DrivingVerdict{}
	}
	if s.resting() {
		return DrivingVerdict{NotDriving: true, Time: min(speed.Time, s.Latest[EngineSpeed].Time)}
	}
	if s.parked() {
		return DrivingVerdict{NotDriving: true, Time: speed.Time}
	}
	return DrivingVerdict{State: s.Pace, Time: s.roadTime(speed.Time)}
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

// observeRest keeps RestingSince and Traffic.Stood, and forgets the drive once it is
// over, so that the next one starts in "normal". before is the speed known before
// this sample: an engine read earlier than that was read before the car moved last,
// and says nothing of this stop.
func (s *State) observeRest(before Reading) {
	speed, ok := s.speed()
	engine := s.Latest[EngineSpeed]
	off := engine.Time != 0 && engine.Value == 0 && engine.Time >= before.Time
	if off && speed.Time > before.Time && speed.Value > drives && before.Value > drives {
		s.Traffic.EngineMute = true
	}
	if !ok || speed.Value > moving || engine.Time == 0 || engine.Value > 0 || s.Traffic.EngineMute {
		s.RestingSince = 0
	} else if s.RestingSince == 0 && off {
		s.RestingSince = max(speed.Time, engine.Time)
	}
	if !ok || speed.Value >= stands {
		s.Traffic.Stood = 0
	} else if s.Traffic.Stood == 0 {
		s.Traffic.Stood = speed.Time
	}
	if ok && (s.ignitionOff() || s.resting() || s.parked()) {
		was := s.Traffic
		s.startDrive(speed.Value, speed.Time)
		// The road it came from still counts until it drives again: it says how long a
		// standstill had to be.
		s.Traffic.EngineMute, s.Traffic.Stood, s.Traffic.Cruise = was.EngineMute, was.Stood, was.Cruise
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
	return s.RestingSince != 0 && speed.Time.Sub(s.RestingSince) >= restAfter && !s.ignitionOn(speed.Time)
}

// parked reports whether the car has stood for so long that it is parked, where
// neither engine nor ignition tells whether it waits.
func (s *State) parked() bool {
	speed, _ := s.speed()
	t := speed.Time
	return s.Traffic.Stood != 0 && t.Sub(s.Traffic.Stood) >= s.parksAfter() && !s.engineTells(t) && !s.ignitionOn(t)
}

// parksAfter is how long it must have stood for that, on the road that it came from.
func (s *State) parksAfter() time.Duration {
	if s.Traffic.Cruise >= motorway {
		return closedAfter
	}
	return parkedAfter
}

// engineTells reports whether the engine speed says at t if the car waits: it was
// read in the last minutes, and is not one that stands while the car drives.
func (s *State) engineTells(t UnixMilli) bool {
	e := s.Latest[EngineSpeed]
	return e.Time != 0 && t.Sub(e.Time) < parkedAfter && !s.Traffic.EngineMute
}

// ignitionOn reports whether the ignition was on not long before t.
func (s *State) ignitionOn(t UnixMilli) bool {
	i := s.Latest[LowVoltageSystemState]
	return Ignition(i.Value).On() && t.Sub(i.Time) <= ignitionHolds
}
