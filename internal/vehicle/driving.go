package vehicle

import (
	"time"

	"example.org/carstate/internal/signal"
)

type DrivingState uint8

const (
	NormalDriving DrivingState = 1
	SlowDriving   DrivingState = 2
	TrafficJam    DrivingState = 3
)

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

type DrivingVerdict struct {
	// State is 0 if nothing is known or the car is not driving.
	State      DrivingState
	NotDriving bool
	// Time is that of the oldest reading behind the verdict, of the newest of each signal.
	Time signal.UnixMilli
}

// At is like [ThrottleVerdict.At], but the outcome of a car that is not being driven is NotDriving
// in place of Answered.
func (v DrivingVerdict) At(now signal.UnixMilli, maxAge time.Duration) Outcome {
	if o := fresh(v.Time, now, maxAge); o != Answered {
		return o
	}
	if v.NotDriving {
		return NotDriving
	}
	return Answered
}

// Driving is zero without any speed, neither read nor shown by positions.
func (s *State) Driving() DrivingVerdict {
	m := &s.Traffic
	switch {
	case s.ignitionOff():
		return DrivingVerdict{NotDriving: true, Time: s.Latest[signal.LowVoltageSystemState].Time}
	case m.At == 0:
		return DrivingVerdict{}
	case s.resting():
		return DrivingVerdict{NotDriving: true, Time: min(m.At, s.Latest[signal.EngineSpeed].Time)}
	case s.parked():
		return DrivingVerdict{NotDriving: true, Time: m.At}
	}
	return DrivingVerdict{State: s.Pace, Time: s.roadTime(m.At)}
}

// observeRest also resets the memory of traffic if the car has stopped driving. An engine speed of
// 0 older than before, the speed before this sample, is ignored, because the car may have moved
// since.
func (s *State) observeRest(before signal.Reading) {
	m := &s.Traffic
	engine := s.Latest[signal.EngineSpeed]
	off := engine.Time != 0 && engine.Value == 0 && engine.Time >= before.Time
	if off && m.At > before.Time && m.Kmh > drivingFrom && before.Value > drivingFrom {
		m.EngineMute = true
	}
	stays := s.stays()
	if m.At == 0 || m.Kmh > signal.MovingKmh && !stays || engine.Time == 0 || engine.Value > 0 || m.EngineMute {
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
		// parksAfter needs Cruise until the car drives again.
		m.EngineMute, m.Stood, m.Cruise = was.EngineMute, was.Stood, was.Cruise
	}
}

func (s *State) stays() bool {
	w := &s.Way
	return w.Time != 0 && s.Traffic.At.Sub(w.Time) <= signal.NewDrive && w.Time.Sub(w.StaySince) >= stayShows
}

// observeIgnition discards an "ignition off" if the car moves later than coasting. Without
// positions, one speed may be noise: two, or a running engine, show it.
func (s *State) observeIgnition(before signal.Reading) {
	i, m, w, engine := &s.Latest[signal.LowVoltageSystemState], &s.Traffic, &s.Way, s.Latest[signal.EngineSpeed]
	after := i.Time.Add(coasting)
	if signal.Ignition(i.Value).On() || i.Time == 0 {
		return
	}
	runs := engine.Time == m.At && engine.Value > 0
	twice := before.Time > after && before.Time < m.At && before.Value > signal.MovingKmh
	last, _ := s.Latest.Speed()
	moves := m.At > after && m.Kmh > signal.MovingKmh && last.Time == m.At && (runs || twice)
	if w.Time > i.Time {
		moves = w.StaySince > after && w.LegKmh > 0
	}
	if moves {
		i.Value = float32(signal.IgnitionUndefined)
	}
}

func (s *State) ignitionOff() bool {
	i, m := s.Latest[signal.LowVoltageSystemState], &s.Traffic
	if k := signal.Ignition(i.Value); k == signal.IgnitionUndefined || k.On() {
		return false
	}
	coasts := m.At > i.Time && m.Kmh > signal.MovingKmh && m.At <= i.Time.Add(coasting)
	return !coasts
}

// The car may have driven since its newest speed.
func (s *State) resting() bool {
	t := s.Traffic.At
	return s.RestingSince != 0 && t.Sub(s.RestingSince) >= restAfter && !s.ignitionOn(t)
}

// If the engine speed shows whether the car waits in traffic, resting decides.
func (s *State) parked() bool {
	t, engine := s.Traffic.At, s.Latest[signal.EngineSpeed].Time
	if s.Traffic.Stood == 0 || t.Sub(s.Traffic.Stood) < s.parksAfter() || s.ignitionOn(t) {
		return false
	}
	return engine == 0 || t.Sub(engine) >= parkedAfter || s.Traffic.EngineMute
}

func (s *State) parksAfter() time.Duration {
	queue := s.Pace == TrafficJam && s.seenByOthers(s.Traffic.At) && s.Road.PassedFreely <= s.Traffic.Stood.Add(time.Minute)
	if queue || s.Traffic.Cruise >= motorway {
		return closedAfter
	}
	return parkedAfter
}

func (s *State) ignitionOn(t signal.UnixMilli) bool {
	i := s.Latest[signal.LowVoltageSystemState]
	return signal.Ignition(i.Value).On() && t.Sub(i.Time) <= ignitionHolds
}
