package vehicle

import "time"

// DrivingState says how a car drives. The values are those sent to clients.
type DrivingState uint8

// The driving states. Zero means no state.
const (
	NormalDriving DrivingState = 1
	SlowDriving   DrivingState = 2
	TrafficJam    DrivingState = 3
)

// String returns the state as text, such as "slow driving"; "none" if there is no state.
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

// DrivingVerdict is what the driving rules conclude about a car from its latest readings.
type DrivingVerdict struct {
	// State is 0 if nothing is known or the car is not driving.
	State DrivingState
	// NotDriving is set if the car is not being driven: its ignition is off, it has been stationary
	// with its engine off for minutes, or it has been stationary for a long time.
	NotDriving bool
	// Time is the time of the oldest reading behind the verdict. These readings are the newest ones
	// of the signals on which the verdict depends. Time is zero if there is no verdict.
	Time UnixMilli
}

// At is like [ThrottleVerdict.At]. In addition, the outcome of a verdict that is neither Unknown
// nor Stale is NotDriving if the car is not being driven.
func (v DrivingVerdict) At(now UnixMilli, maxAge time.Duration) Outcome {
	if o := fresh(v.Time, now, maxAge); o != Answered {
		return o
	}
	if v.NotDriving {
		return NotDriving
	}
	return Answered
}

// Driving returns the driving verdict. The verdict is "not driving" if the ignition is off, if
// speed and engine speed show a car at rest for minutes, or if the car has been stationary for a
// long time. Otherwise, the verdict results from the present speed of traffic, compared with its
// free flow, the speed in light traffic (see freeFlow). If no speed was ever read and the ignition
// is not off, there is no verdict: the result is the zero DrivingVerdict.
func (s *State) Driving() DrivingVerdict {
	speed, ok := s.Speed()
	if s.ignitionOff() {
		// "Ignition off" alone decides. A speed reading older than the ignition's is not used, and
		// a newer one only confirms that the car is stationary.
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

// Speed returns the newest reading of the signals Speed and OBDSpeed. If both were read at the same
// time, the result is the reading of the signal Speed. The second result is false if neither was
// ever read.
func (s *State) Speed() (Reading, bool) {
	r := s.Latest[Speed]
	if o := s.Latest[OBDSpeed]; o.Time > r.Time {
		r = o
	}
	return r, r.Time != 0
}

// observeRest updates three fields about the car's standstill, after a sample. RestingSince is the
// time since which the car has been stationary with its engine off. Traffic.Stood is the time since
// which the car has been stationary. Traffic.EngineMute is set if the engine was off while the car
// drove, because the car is then electric or a hybrid.
//
// If the car has stopped driving, observeRest also resets the rest of the memory of traffic, except
// Cruise, so that the next drive starts as "normal".
//
// The parameter before is the newest speed reading before this sample. If an engine speed of 0 was
// read earlier than that reading, it is ignored, because the car may have moved since.
func (s *State) observeRest(before Reading) {
	speed, ok := s.Speed()
	engine := s.Latest[EngineSpeed]
	off := engine.Time != 0 && engine.Value == 0 && engine.Time >= before.Time
	if off && speed.Time > before.Time && speed.Value > drivingFrom && before.Value > drivingFrom {
		s.Traffic.EngineMute = true
	}
	if !ok || speed.Value > moving || engine.Time == 0 || engine.Value > 0 || s.Traffic.EngineMute {
		s.RestingSince = 0
	} else if s.RestingSince == 0 && off {
		s.RestingSince = max(speed.Time, engine.Time)
	}
	if !ok || speed.Value >= stationaryBelow {
		s.Traffic.Stood = 0
	} else if s.Traffic.Stood == 0 {
		s.Traffic.Stood = speed.Time
	}
	if ok && (s.ignitionOff() || s.resting() || s.parked()) {
		was := s.Traffic
		s.startDrive(speed.Value, speed.Time)
		// Cruise is kept until the car drives again, because parksAfter uses it to decide how long
		// a standstill must last.
		s.Traffic.EngineMute, s.Traffic.Stood, s.Traffic.Cruise = was.EngineMute, was.Stood, was.Cruise
	}
}

// observeIgnition discards an "ignition off" that the car's motion disproves: it is replaced by
// [IgnitionUndefined] if the car is faster than moving (3 km/h) more than coasting (30 s) after it.
func (s *State) observeIgnition() {
	i := &s.Latest[LowVoltageSystemState]
	speed, _ := s.Speed()
	if !Ignition(i.Value).On() && speed.Value > moving && speed.Time.Sub(i.Time) > coasting {
		i.Value = float32(IgnitionUndefined)
	}
}

// ignitionOff reports whether the car has said that its ignition is off, and its newest speed does
// not show that it has moved since then.
func (s *State) ignitionOff() bool {
	i := s.Latest[LowVoltageSystemState]
	if k := Ignition(i.Value); k == IgnitionUndefined || k.On() {
		return false
	}
	speed, _ := s.Speed()
	return speed.Time <= i.Time || speed.Value <= moving
}

// resting reports whether, at its newest speed reading, the car had been stationary with its engine
// off for at least restAfter, without reporting "ignition on" in the hour before (ignitionHolds).
// The time after the newest speed reading is not counted, because the car may have driven in that
// time.
func (s *State) resting() bool {
	speed, _ := s.Speed()
	return s.RestingSince != 0 && speed.Time.Sub(s.RestingSince) >= restAfter && !s.ignitionOn(speed.Time)
}

// parked reports whether the car has been stationary for so long (parksAfter) that it is taken to
// be parked. It returns false if the ignition is on. It also returns false if the engine speed can
// show whether the car waits in traffic, because resting then decides. For this, the engine speed
// must have been read less than 10 minutes (parkedAfter) before the newest speed, and the car must
// not be an electric or hybrid car, which also drives with its engine at rest.
func (s *State) parked() bool {
	speed, _ := s.Speed()
	t, engine := speed.Time, s.Latest[EngineSpeed].Time
	if s.Traffic.Stood == 0 || t.Sub(s.Traffic.Stood) < s.parksAfter() || s.ignitionOn(t) {
		return false
	}
	return engine == 0 || t.Sub(engine) >= parkedAfter || s.Traffic.EngineMute
}

// parksAfter returns how long a car must be stationary to be taken as parked: an hour (closedAfter)
// if its mean speed before was at least motorway (80 km/h), otherwise 10 minutes (parkedAfter).
func (s *State) parksAfter() time.Duration {
	if s.Traffic.Cruise >= motorway {
		return closedAfter
	}
	return parkedAfter
}

// ignitionOn reports whether the ignition was on within ignitionHolds before t.
func (s *State) ignitionOn(t UnixMilli) bool {
	i := s.Latest[LowVoltageSystemState]
	return Ignition(i.Value).On() && t.Sub(i.Time) <= ignitionHolds
}
