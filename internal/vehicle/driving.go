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
// free flow, the speed in light traffic (see freeFlow). If no speed is known, neither read nor
// shown by positions, and the ignition is not off, the result is the zero DrivingVerdict.
func (s *State) Driving() DrivingVerdict {
	m := &s.Traffic
	switch {
	case s.ignitionOff():
		// "Ignition off" alone decides.
		return DrivingVerdict{NotDriving: true, Time: s.Latest[LowVoltageSystemState].Time}
	case m.At == 0:
		return DrivingVerdict{}
	case s.resting():
		return DrivingVerdict{NotDriving: true, Time: min(m.At, s.Latest[EngineSpeed].Time)}
	case s.parked():
		return DrivingVerdict{NotDriving: true, Time: m.At}
	}
	return DrivingVerdict{State: s.Pace, Time: s.roadTime(m.At)}
}

// Speed returns the newest reading of the signals Speed and OBDSpeed. If both were read at the same
// time, that is the reading of Speed. It returns false if neither was ever read.
func (s *State) Speed() (Reading, bool) {
	r := s.Latest[Speed]
	if o := s.Latest[OBDSpeed]; o.Time > r.Time {
		r = o
	}
	return r, r.Time != 0
}

// observeRest updates three fields about the car's standstill, after a sample. RestingSince is the
// time since which the car has been stationary with its engine off. Traffic.Stood is the time since
// which the car has been stationary: by its positions, if they are known, and otherwise by its
// speeds. Traffic.EngineMute is set if the engine was off while the car drove, because the car is
// then electric or a hybrid.
//
// If the car has stopped driving, observeRest also resets the rest of the memory of traffic, except
// Cruise, so that the next drive starts as "normal".
//
// An engine speed of 0 that was read earlier than before, the car's speed before this sample, is
// ignored, because the car may have moved since.
func (s *State) observeRest(before Reading) {
	m := &s.Traffic
	engine := s.Latest[EngineSpeed]
	off := engine.Time != 0 && engine.Value == 0 && engine.Time >= before.Time
	if off && m.At > before.Time && m.Kmh > drivingFrom && before.Value > drivingFrom {
		m.EngineMute = true
	}
	stays := s.stays()
	if m.At == 0 || m.Kmh > moving && !stays || engine.Time == 0 || engine.Value > 0 || m.EngineMute {
		s.RestingSince = 0
	} else if s.RestingSince == 0 && off {
		s.RestingSince = max(m.At, engine.Time)
	}
	switch {
	case stays:
		m.Stood = s.Way.StaySince
	case m.At == 0 || m.Kmh >= stationaryBelow:
		m.Stood = 0
	case m.Stood == 0:
		m.Stood = m.At
	}
	if m.At != 0 && (s.ignitionOff() || s.resting() || s.parked()) {
		was := *m
		s.startDrive(m.Kmh, m.At)
		// Cruise is kept until the car drives again, because parksAfter uses it to decide how long
		// a standstill must last.
		m.EngineMute, m.Stood, m.Cruise = was.EngineMute, was.Stood, was.Cruise
	}
}

// stays reports whether the car's positions show that it is stationary: it has been in one circle
// for so long that it was at walking pace at most, whatever its speeds say.
func (s *State) stays() bool {
	w := &s.Way
	return w.Time != 0 && s.Traffic.At.Sub(w.Time) <= newDrive && w.Time.Sub(w.StaySince) >= stayShows
}

// observeIgnition discards an "ignition off" that the car's motion disproves: it is replaced by
// [IgnitionUndefined] if the car moves more than coasting (30 s) after it. Its positions show that
// it moves if they left the circle in which it was. Without positions, two consecutive speeds show
// it, or one with a running engine; a single speed may be noise. before is the car's speed before
// this sample.
func (s *State) observeIgnition(before Reading) {
	i, m, w, engine := &s.Latest[LowVoltageSystemState], &s.Traffic, &s.Way, s.Latest[EngineSpeed]
	after := i.Time.Add(coasting)
	if Ignition(i.Value).On() || i.Time == 0 {
		return
	}
	runs := engine.Time == m.At && engine.Value > 0
	twice := before.Time > after && before.Time < m.At && before.Value > moving
	last, _ := s.Speed()
	moves := m.At > after && m.Kmh > moving && last.Time == m.At && (runs || twice)
	if w.Time > i.Time {
		moves = w.StaySince > after && w.LegKmh > 0
	}
	if moves {
		i.Value = float32(IgnitionUndefined)
	}
}

// ignitionOff reports whether the car has said that its ignition is off, and nothing has shown that
// it has moved since then.
func (s *State) ignitionOff() bool {
	i, m := s.Latest[LowVoltageSystemState], &s.Traffic
	if k := Ignition(i.Value); k == IgnitionUndefined || k.On() {
		return false
	}
	coasts := m.At > i.Time && m.Kmh > moving && m.At <= i.Time.Add(coasting)
	return !coasts
}

// resting reports whether, at its newest speed, the car had been stationary with its engine off for
// at least restAfter, without reporting "ignition on" in the hour before (ignitionHolds). The time
// after that is not counted, because the car may have driven in that time.
func (s *State) resting() bool {
	t := s.Traffic.At
	return s.RestingSince != 0 && t.Sub(s.RestingSince) >= restAfter && !s.ignitionOn(t)
}

// parked reports whether the car has been stationary for so long (parksAfter) that it is taken to
// be parked. It returns false if the ignition is on. It also returns false if the engine speed can
// show whether the car waits in traffic, because resting then decides. For this, the engine speed
// must have been read less than 10 minutes (parkedAfter) before the newest speed, and the car must
// not be an electric or hybrid car, which also drives with its engine at rest.
func (s *State) parked() bool {
	t, engine := s.Traffic.At, s.Latest[EngineSpeed].Time
	if s.Traffic.Stood == 0 || t.Sub(s.Traffic.Stood) < s.parksAfter() || s.ignitionOn(t) {
		return false
	}
	return engine == 0 || t.Sub(engine) >= parkedAfter || s.Traffic.EngineMute
}

// parksAfter returns how long a car must be stationary to be taken as parked: an hour (closedAfter)
// if its mean speed before was at least motorway (80 km/h), or if it stands in a queue that nobody
// has passed since, otherwise 10 minutes (parkedAfter).
func (s *State) parksAfter() time.Duration {
	queue := s.Pace == TrafficJam && s.seenByOthers(s.Traffic.At) && s.Road.PassedFreely <= s.Traffic.Stood.Add(time.Minute)
	if queue || s.Traffic.Cruise >= motorway {
		return closedAfter
	}
	return parkedAfter
}

// ignitionOn reports whether the ignition was on within ignitionHolds before t.
func (s *State) ignitionOn(t UnixMilli) bool {
	i := s.Latest[LowVoltageSystemState]
	return Ignition(i.Value).On() && t.Sub(i.Time) <= ignitionHolds
}
