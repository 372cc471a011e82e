package vehicle

import (
	"slices"

	"example.org/carstate/internal/signal"
)

// finding is what a rule measured. If it concerns one sensor only, x and y are the same.
type finding struct {
	rule           ThrottleRule
	x, y           ThrottleSensor
	measure, alarm float32
	unit           string
}

func (m *ThrottleMemory) runRules(s *State) {
	t := s.Latest.ThrottleTime()
	if m.Last == t || !slices.ContainsFunc(throttleSensors[:], func(g signal.Signal) bool { return s.Latest[g].Time == t }) {
		return
	}
	if m.Last != 0 && t.Sub(m.Last) > signal.NewDrive {
		m.startDrive()
	}
	followed, last := m.observeLags(s, t), m.Last
	m.Last = t
	if s.noAnswer(t) {
		return
	}
	off := s.engineOff(t)
	if off {
		m.pauseEngine()
	}
	for i := range m.Pairs {
		if off && throttlePairs[i].x == Command || followed[i] {
			continue
		}
		if after, ok := m.compare(s, i, t); ok {
			for k, f := range m.pairFindings(i) {
				covered := after
				if k == 1 && f.rule == throttlePairs[i].disagree {
					covered = 0 // the finding before has the same rule and sensors
				}
				m.report(s, f, covered)
			}
		}
	}
	for i := range Load {
		if sensor := &m.Sensors[i]; s.Latest[throttleSensors[i]].Time == t {
			isNew, after := s.reading(i).Time == t, min(t.Seconds(last), coversAlone)
			if isNew {
				after = sensor.timeCovered()
			}
			if !off {
				m.observeScale(s, i, t, after, isNew && sensor.Step > lowLimit)
				m.report(s, m.limitFinding(s, i), after)
			}
			if !isNew {
				continue
			}
			for _, f := range m.travelFindings(s, i) {
				m.report(s, f, after)
			}
		}
	}
	if !off {
		if after, ok := m.follow(s, t); ok {
			m.report(s, m.followFinding(), after)
		}
	}
	if a := &m.Alarm; a.Calm >= a.calmNeeded() {
		*a = AlarmMemory{Returns: min(a.Returns+1, mostReturns)}
	}
}

func (a *AlarmMemory) calmNeeded() float32 { return calmFor * float32(uint(1)<<a.Returns) }

// engineOff reports whether nothing moves the plate. It then rests wherever its spring puts it, and
// sensors may have no supply.
func (s *State) engineOff(t signal.UnixMilli) bool {
	e := s.Latest[signal.EngineSpeed]
	return e.Time != 0 && e.Value == 0 && t.Sub(e.Time) <= engineHolds || s.ignitionOff()
}

// pauseEngine keeps an anomaly.
func (m *ThrottleMemory) pauseEngine() {
	for i := range m.Sensors {
		m.Sensors[i].AtLimit = 0
	}
	for i := range m.Pairs {
		if p := &m.Pairs[i]; throttlePairs[i].x == Command {
			p.Disagreement, p.Stuck, p.Noise = 0, [2]StuckMemory{}, [2]NoiseMemory{}
		}
	}
	m.Follow.Last, m.Follow.For = 0, 0
}

func (s *State) recent(i ThrottleSensor, t signal.UnixMilli) bool {
	r := s.reading(i)
	return r.Time != 0 && t.Seconds(r.Time) <= bracketWithin
}

// startDrive reduces the weight of what was learned. An anomaly is kept: a fault does not disappear
// between two drives.
func (m *ThrottleMemory) startDrive() {
	for i := range m.Pairs {
		m.Pairs[i].forget(pairDriveMemory)
	}
}

func (m *ThrottleMemory) report(s *State, f finding, after float32) {
	a := &m.Alarm
	switch {
	case a.Since == 0 && (f.measure >= f.alarm || a.Returns > 0 && f.measure >= returnShare*f.alarm) &&
		s.plateTime() != 0:
		*a = AlarmMemory{
			Since: m.Last, Seen: m.Last, Looked: m.Last,
			ValueX: s.reading(f.x).Value, ValueY: s.reading(f.y).Value,
			Expected: m.expected(s, f.x, f.y), Measure: f.measure,
			Rule: f.rule, X: f.x, Y: f.y, Returns: a.Returns,
		}
	case a.Since != 0 && a.Rule == f.rule && a.X == f.x && a.Y == f.y:
		a.Looked = m.Last
		if f.measure >= f.alarm/2 {
			a.Seen, a.Calm = m.Last, 0
		} else {
			a.Calm += after
		}
	}
}

// expected returns 0 if unknown.
func (m *ThrottleMemory) expected(s *State, x, y ThrottleSensor) float32 {
	for i := range throttlePairs {
		d, p := &throttlePairs[i], &m.Pairs[i]
		v := s.reading(x).Value
		switch {
		case !p.mature():
		case d.x == x && d.y == y:
			return p.MeanY + p.slope()*(v-p.MeanX)
		case d.x == y && d.y == x && abs(p.slope()) >= slopeLeast:
			return p.MeanX + (v-p.MeanY)/p.slope()
		}
	}
	return 0
}

func (m *ThrottleMemory) pairFindings(i int) [5]finding {
	d, p := &throttlePairs[i], &m.Pairs[i]
	return [...]finding{
		{d.disagree, d.x, d.y, p.Disagreement, disagreementAlarm, "percent s"},
		{d.stuck, d.x, d.y, p.Stuck[0].For, stuckAlarm, "s"},
		{d.stuck, d.y, d.x, p.Stuck[1].For, stuckAlarm, "s"},
		{RuleNoise, d.x, d.y, p.Noise[0].Level, noiseAlarm, "percent"},
		{RuleNoise, d.y, d.x, p.Noise[1].Level, noiseAlarm, "percent"},
	}
}

func (m *ThrottleMemory) limitFinding(s *State, i ThrottleSensor) finding {
	f := finding{RuleElectricalLimit, i, i, m.Sensors[i].AtLimit, lowLimitAlarm, "s"}
	if s.reading(i).Value >= highLimit {
		f.alarm = highLimitAlarm
	}
	return f
}

// travelFindings compares plate A, without plate B and the command, with engine load or the pedal.
func (m *ThrottleMemory) travelFindings(s *State, i ThrottleSensor) [2]finding {
	travel, t := m.Sensors[i].Travel, s.reading(i).Time
	all := finding{RuleNoise, i, i, travel, travelAlarm, "percent"}
	if i == PlateA {
		all.alarm = plateTravelAlarm
	}
	alone := i == PlateA && !s.recent(PlateB, t) && !s.recent(Command, t)
	switch {
	case alone && s.recent(Load, t):
		return [...]finding{all, {RuleNoise, i, Load, travel - m.Sensors[Load].Travel, loadTravelAlarm, "percent"}}
	case alone && s.recent(PedalD, t):
		alarm := float32(pedalTravelAlarm)
		if m.Follow.follows() {
			alarm = followTravelAlarm
		}
		return [...]finding{all, {RuleNoise, i, PedalD, travel - m.Sensors[PedalD].Travel, alarm, "percent"}}
	}
	return [...]finding{all, {RuleNoise, i, i, 0, all.alarm, "percent"}}
}

func (m *ThrottleMemory) followFinding() finding {
	f := &m.Follow
	return finding{RulePlatePedal, PlateA, f.Demand, float32(f.Missed), missedAlarm, "demands missed"}
}
