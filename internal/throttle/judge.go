package throttle

import (
	"slices"

	"example.org/carstate/internal/signal"
)

type finding struct {
	rule           Rule
	x, y           Sensor
	measure, alarm float32
	unit           string
}

func (c Car) RunRules() {
	t := c.Latest.ThrottleTime()
	if c.Last == t || !slices.ContainsFunc(signals[:], func(g signal.Signal) bool { return c.Latest[g].Time == t }) {
		return
	}
	if c.Last != 0 && t.Sub(c.Last) > signal.NewDrive {
		c.startDrive()
	}
	followed, last := c.observeLags(t), c.Last
	c.Last = t
	if c.noAnswer(t) {
		return
	}
	off := c.engineOff(t)
	if off {
		c.pauseEngine()
	}
	for i := range c.Pairs {
		if off && pairs[i].x == Command || followed[i] {
			continue
		}
		if after, ok := c.compare(i, t); ok {
			for k, f := range c.pairFindings(i) {
				covered := after
				if k == 1 && f.rule == pairs[i].disagree {
					covered = 0 // counted for the finding before, of the same rule and sensors
				}
				c.report(f, covered)
			}
		}
	}
	for i := range Load {
		if sensor := &c.Sensors[i]; c.Latest[signals[i]].Time == t {
			isNew, after := c.reading(i).Time == t, min(t.Seconds(last), coversAlone)
			if isNew {
				after = sensor.timeCovered()
			}
			if !off {
				c.observeScale(i, t, after, isNew && sensor.Step > lowLimit)
				c.report(c.limitFinding(i), after)
			}
			if !isNew {
				continue
			}
			found, n := c.travelFindings(i)
			for _, f := range found[:n] {
				c.report(f, after)
			}
		}
	}
	if !off {
		if after, ok := c.follow(t); ok {
			c.report(c.followFinding(), after)
		}
	}
	if a := &c.Alarm; a.Calm >= a.calmNeeded() {
		*a = AlarmMemory{Returns: min(a.Returns+1, mostReturns)}
	}
}

func (a *AlarmMemory) calmNeeded() float32 { return calmFor * float32(uint(1)<<a.Returns) }

// engineOff reports whether nothing moves the plate. The plate then rests wherever its spring puts
// it, and sensors may have no supply.
func (c Car) engineOff(t signal.UnixMilli) bool {
	e := c.Latest[signal.EngineSpeed]
	return e.Time != 0 && e.Value == 0 && t.Sub(e.Time) <= engineHolds || c.IgnitionOff
}

// pauseEngine drops evidence, but no anomaly.
func (m *Memory) pauseEngine() {
	for i := range m.Sensors {
		m.Sensors[i].AtLimit = 0
	}
	for i := range m.Pairs {
		if p := &m.Pairs[i]; pairs[i].x == Command {
			p.Disagreement, p.Stuck, p.Noise = 0, [2]StuckMemory{}, [2]NoiseMemory{}
		}
	}
	m.Follow.Last, m.Follow.For = 0, 0
}

func (c Car) recent(i Sensor, t signal.UnixMilli) bool {
	r := c.reading(i)
	return r.Time != 0 && t.Seconds(r.Time) <= bracketWithin
}

// startDrive reduces the weight of what was learned, but keeps an anomaly: a fault does not
// disappear between drives.
func (m *Memory) startDrive() {
	for i := range m.Pairs {
		m.Pairs[i].forget(pairDriveMemory)
	}
}

func (c Car) report(f finding, after float32) {
	a := &c.Alarm
	switch {
	case a.Since == 0 && (f.measure >= f.alarm || a.Returns > 0 && f.measure >= returnShare*f.alarm) &&
		c.PlateTime() != 0:
		*a = AlarmMemory{
			Since: c.Last, Seen: c.Last, Looked: c.Last,
			ValueX: c.reading(f.x).Value, ValueY: c.reading(f.y).Value,
			Expected: c.expected(f.x, f.y), Measure: f.measure,
			Rule: f.rule, X: f.x, Y: f.y, Returns: a.Returns,
		}
	case a.Since != 0 && a.Rule == f.rule && a.X == f.x && a.Y == f.y:
		a.Looked = c.Last
		if f.measure >= f.alarm/2 {
			a.Seen, a.Calm = c.Last, 0
		} else {
			a.Calm += after
		}
	}
}

func (c Car) expected(x, y Sensor) float32 {
	for i := range pairs {
		d, p := &pairs[i], &c.Pairs[i]
		v := c.reading(x).Value
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

func (m *Memory) pairFindings(i int) [5]finding {
	d, p := &pairs[i], &m.Pairs[i]
	return [...]finding{
		{d.disagree, d.x, d.y, p.Disagreement, disagreementAlarm, "percent s"},
		{d.stuck, d.x, d.y, p.Stuck[0].For, stuckAlarm, "s"},
		{d.stuck, d.y, d.x, p.Stuck[1].For, stuckAlarm, "s"},
		{RuleNoise, d.x, d.y, p.Noise[0].Level, noiseAlarm, "percent"},
		{RuleNoise, d.y, d.x, p.Noise[1].Level, noiseAlarm, "percent"},
	}
}

func (c Car) limitFinding(i Sensor) finding {
	f := finding{RuleElectricalLimit, i, i, c.Sensors[i].AtLimit, lowLimitAlarm, "s"}
	if c.reading(i).Value >= highLimit {
		f.alarm = highLimitAlarm
	}
	return f
}

// travelFindings compares plate A with engine load or the pedal if neither plate B nor the command
// is read.
func (c Car) travelFindings(i Sensor) (found [2]finding, n int) {
	travel, t := c.Sensors[i].Travel, c.reading(i).Time
	all := finding{RuleNoise, i, i, travel, travelAlarm, "percent"}
	if i == PlateA {
		all.alarm = plateTravelAlarm
	}
	alone := i == PlateA && !c.recent(PlateB, t) && !c.recent(Command, t)
	switch {
	case alone && c.recent(Load, t):
		return [...]finding{all, {RuleNoise, i, Load, travel - c.Sensors[Load].Travel, loadTravelAlarm, "percent"}}, 2
	case alone && c.recent(PedalD, t):
		alarm := float32(pedalTravelAlarm)
		if c.Follow.follows() {
			alarm = followTravelAlarm
		}
		return [...]finding{all, {RuleNoise, i, PedalD, travel - c.Sensors[PedalD].Travel, alarm, "percent"}}, 2
	}
	return [...]finding{all, {}}, 1
}

func (m *Memory) followFinding() finding {
	f := &m.Follow
	return finding{RulePlatePedal, PlateA, f.Demand, float32(f.Missed), missedAlarm, "demands missed"}
}
