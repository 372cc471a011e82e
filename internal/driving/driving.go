// Package driving holds the rules that conclude how a car drives, and what they remember of it.
package driving

import (
	"time"

	"example.org/carstate/internal/signal"
)

type State uint8

const (
	Normal State = 1
	Slow   State = 2
	Jam    State = 3
)

func (d State) String() string {
	if d > Jam {
		return "none"
	}
	return [...]string{"none", "normal driving", "slow driving", "traffic jam"}[d]
}

type Car struct {
	*Memory
	*signal.Latest
}

type Memory struct {
	MeanSpeed    float32 // km/h, with a time constant of one minute (see stopCounts)
	Pace         State   // zero until a speed was read
	Traffic      Traffic
	Way          Way // zero for a car that sends no position
	Road         RoadAround
	RestingSince signal.UnixMilli
}

type Verdict struct {
	State      State // 0 if nothing is known or the car is not driving
	NotDriving bool
	Time       signal.UnixMilli // the oldest of the readings behind the verdict, each the newest of its signal
}

// Verdict is zero without any speed, read or shown by positions, unless the ignition is off.
func (c Car) Verdict() Verdict {
	m := &c.Traffic
	switch {
	case c.IgnitionOff():
		return Verdict{NotDriving: true, Time: c.Latest[signal.LowVoltageSystemState].Time}
	case m.At == 0:
		return Verdict{}
	case c.resting():
		return Verdict{NotDriving: true, Time: min(m.At, c.Latest[signal.EngineSpeed].Time)}
	case c.parked():
		return Verdict{NotDriving: true, Time: m.At}
	}
	return Verdict{State: c.Pace, Time: c.roadTime(m.At)}
}

// ObserveStop ends the drive of a parked car. It needs the readings in Latest that Observe had, and
// the speed before.
func (c Car) ObserveStop(before signal.Reading) {
	c.observeIgnition(before)
	c.observeRest(before)
}

// observeRest also resets the memory of traffic when a drive ends. An engine speed of 0 older than
// before, the speed before this sample, is ignored: the car may have moved since.
func (c Car) observeRest(before signal.Reading) {
	m := &c.Traffic
	engine := c.Latest[signal.EngineSpeed]
	off := engine.Time != 0 && engine.Value == 0 && engine.Time >= before.Time
	if off && m.At > before.Time && m.Kmh > drivingFrom && before.Value > drivingFrom {
		m.EngineMute = true
	}
	stays := c.stays()
	if m.At == 0 || m.Kmh > signal.MovingKmh && !stays || engine.Time == 0 || engine.Value > 0 || m.EngineMute {
		c.RestingSince = 0
	} else if c.RestingSince == 0 && off {
		c.RestingSince = max(m.At, engine.Time)
	}
	switch {
	case stays:
		m.Stood = c.Way.StaySince
	case m.At == 0 || m.Kmh >= stationaryBelow:
		m.Stood = 0
	case m.Stood == 0:
		m.Stood = m.At
	}
	if m.At != 0 && (c.IgnitionOff() || c.resting() || c.parked()) {
		was := *m
		c.startDrive(m.Kmh, m.At)
		// parksAfter needs Cruise until the car drives again.
		m.EngineMute, m.Stood, m.Cruise = was.EngineMute, was.Stood, was.Cruise
	}
}

func (c Car) stays() bool {
	w := &c.Way
	return w.Time != 0 && c.Traffic.At.Sub(w.Time) <= signal.NewDrive && w.Time.Sub(w.StaySince) >= stayShows
}

// observeIgnition discards an "ignition off" if the car moves more than coasting after it. Without
// positions, one speed may be noise: two, or a running engine, show motion.
func (c Car) observeIgnition(before signal.Reading) {
	i, m, w, engine := &c.Latest[signal.LowVoltageSystemState], &c.Traffic, &c.Way, c.Latest[signal.EngineSpeed]
	after := i.Time.Add(coasting)
	if signal.Ignition(i.Value).On() || i.Time == 0 {
		return
	}
	runs := engine.Time == m.At && engine.Value > 0
	twice := before.Time > after && before.Time < m.At && before.Value > signal.MovingKmh
	last, _ := c.Latest.Speed()
	moves := m.At > after && m.Kmh > signal.MovingKmh && last.Time == m.At && (runs || twice)
	if w.Time > i.Time {
		moves = w.StaySince > after && w.LegKmh > 0
	}
	if moves {
		i.Value = float32(signal.IgnitionUndefined)
	}
}

func (c Car) IgnitionOff() bool {
	i, m := c.Latest[signal.LowVoltageSystemState], &c.Traffic
	if k := signal.Ignition(i.Value); k == signal.IgnitionUndefined || k.On() {
		return false
	}
	coasts := m.At > i.Time && m.Kmh > signal.MovingKmh && m.At <= i.Time.Add(coasting)
	return !coasts
}

// resting is as of the newest speed: the car may have driven since.
func (c Car) resting() bool {
	t := c.Traffic.At
	return c.RestingSince != 0 && t.Sub(c.RestingSince) >= restAfter && !c.ignitionOn(t)
}

// parked yields to resting if the engine speed shows whether the car waits in traffic.
func (c Car) parked() bool {
	t, engine := c.Traffic.At, c.Latest[signal.EngineSpeed].Time
	if c.Traffic.Stood == 0 || t.Sub(c.Traffic.Stood) < c.parksAfter() || c.ignitionOn(t) {
		return false
	}
	return engine == 0 || t.Sub(engine) >= parkedAfter || c.Traffic.EngineMute
}

func (c Car) parksAfter() time.Duration {
	queue := c.Pace == Jam && c.seenByOthers(c.Traffic.At) && c.Road.PassedFreely <= c.Traffic.Stood.Add(time.Minute)
	if queue || c.Traffic.Cruise >= motorway {
		return closedAfter
	}
	return parkedAfter
}

func (c Car) ignitionOn(t signal.UnixMilli) bool {
	i := c.Latest[signal.LowVoltageSystemState]
	return signal.Ignition(i.Value).On() && t.Sub(i.Time) <= ignitionHolds
}
