package throttle

import (
	"fmt"
	"math"

	"example.org/carstate/internal/signal"
)

// Explain has the readings and measures of the rule with the anomaly, or without one, of all rules;
// now is the time of the newest reading.
func (c Car) Explain(now signal.UnixMilli) signal.Explanation {
	switch {
	case c.FaultCode != (signal.TroubleCode{}):
		e := explain(RuleTroubleCode)
		e.Text += ": " + c.FaultCode.String()
		list := c.Latest[signal.DTCList]
		e.Facts = []signal.Fact{
			signal.NewFact("trouble codes in the list", float64(list.Value), "", math.NaN(), "", list.Time),
		}
		if gone := c.CodeGone; gone != 0 {
			e.Facts = append(e.Facts, signal.NewFact("time since the lists are without",
				max(0, signal.Rounded(now.Seconds(c.CodeSeen)-float32(gone))), "s", codeGoneFor, "normal again from", now))
		}
		return e
	case c.Alarm.Since != 0:
		e := explain(c.Alarm.Rule)
		e.Text += ": " + c.Alarm.text()
		e.Facts = c.alarmFacts()
		return e
	}
	e := explain(NoRule)
	if c.PlateTime() == 0 {
		e.Text = "no reading of a throttle plate"
	}
	for _, f := range c.findings() {
		e.Facts = append(e.Facts, f.fact(max(c.reading(f.x).Time, c.reading(f.y).Time)))
	}
	return e
}

func explain(r Rule) signal.Explanation {
	return signal.Explanation{Rule: rules[r].name, Version: rules[r].version, Text: rules[r].text}
}

func (a *AlarmMemory) pair() int {
	for i, d := range pairs {
		if d.x == a.X && d.y == a.Y || d.x == a.Y && d.y == a.X {
			return i
		}
	}
	return -1
}

func (a *AlarmMemory) text() string {
	x, y := sensorWords[a.X], sensorWords[a.Y]
	switch a.Rule {
	case RuleRedundantSensors, RulePlateCommand:
		text := fmt.Sprintf("%s read %.0f %% and %s %.0f %%", x, a.ValueX, y, a.ValueY)
		if a.Rule == RulePlateCommand && a.X == Command {
			text = fmt.Sprintf("commanded %.0f %%, it is at %.0f %%", a.ValueX, a.ValueY)
		}
		if a.Expected != 0 {
			text += fmt.Sprintf(" in place of %.0f %%", max(0, min(a.Expected, 100)))
		}
		if i := a.pair(); i >= 0 {
			text += fmt.Sprintf("; up to %.0f %% apart is normal", pairs[i].free)
		}
		return text
	case RuleStuckSensor:
		return fmt.Sprintf("%s stayed at %.0f %% for %.0f s while %s moved by %.0f %% or more", x, a.ValueX, a.Measure,
			y, stuckRange)
	case RuleElectricalLimit:
		return fmt.Sprintf("%s read %.0f %% for %.0f s", x, a.ValueX, a.Measure)
	case RulePlatePedal:
		return fmt.Sprintf("%.0f times in a row %s asked for more, and the plate moved by less than %.1f %%", a.Measure,
			y, plateMoves)
	}
	if a.X == a.Y {
		return x
	}
	return x + " beside " + y
}

func (c Car) alarmFacts() (facts []signal.Fact) {
	a := &c.Alarm
	read := func(name string, value float32, t signal.UnixMilli) {
		facts = append(facts, signal.NewFact(name, float64(value), "percent", math.NaN(), "", t))
	}
	sensors := []Sensor{a.X, a.Y}
	values := []float32{a.ValueX, a.ValueY}
	if a.X == a.Y {
		sensors, values = sensors[:1], values[:1]
	}
	for i, x := range sensors {
		read(signals[x].String()+" when raised", values[i], a.Since)
	}
	if a.Expected != 0 {
		read(signals[a.Y].String()+" expected then", max(0, min(a.Expected, 100)), a.Since)
	}
	for _, x := range sensors {
		g := signals[x]
		read(g.String(), c.Latest[g].Value, c.Latest[g].Time)
	}
	for _, f := range c.findings() {
		if f.rule == a.Rule && f.x == a.X && f.y == a.Y {
			facts = append(facts, f.fact(a.Looked))
			break
		}
	}
	return append(facts, signal.NewFact("time without evidence", signal.Rounded(a.Calm), "s", float64(a.calmNeeded()),
		"normal again from", a.Looked))
}

func (c Car) findings() (all []finding) {
	for i := range c.Pairs {
		if c.Pairs[i].Last != 0 {
			pair := c.pairFindings(i)
			all = append(all, pair[:]...)
		}
	}
	for i := range Load {
		if c.reading(i).Time != 0 {
			all = append(all, c.limitFinding(i))
			travel, n := c.travelFindings(i)
			all = append(all, travel[:n]...)
		}
	}
	if c.Follow.Demand != PlateA { // a demand was read at least once
		all = append(all, c.followFinding())
	}
	return all
}

func (f finding) fact(t signal.UnixMilli) signal.Fact {
	x, y := sensorWords[f.x], sensorWords[f.y]
	switch {
	case f.rule == RuleElectricalLimit:
		return f.measured("time that "+x+" was at an end of its electrical range", t)
	case f.rule == RulePlatePedal:
		return f.measured("times in a row that the plate ignored "+y, t)
	case f.unit == "s":
		return f.measured("time that "+x+" stood still while "+y+" moved", t)
	}
	name := Evidence + x + " moves by itself"
	switch {
	case f.rule != RuleNoise:
		name = Evidence + x + " and " + y + " disagree"
	case f.x != f.y:
		name += " beside " + y
	}
	return signal.NewFact(name, signal.Rounded(100*f.measure/f.alarm), "percent", 100, AnomalyFrom, t)
}

// AnomalyFrom is the [signal.Fact.Limit] of a fact that raises an anomaly.
const AnomalyFrom = "anomaly from"

// Evidence begins the Name of a [signal.Fact] in percent of what raises an alarm.
const Evidence = "evidence that "

func (f finding) measured(name string, t signal.UnixMilli) signal.Fact {
	return signal.NewFact(name, signal.Rounded(f.measure), f.unit, float64(f.alarm), AnomalyFrom, t)
}

var sensorWords = [NumSensors]string{
	PlateA: "plate sensor A", PlateB: "plate sensor B", Command: "the command",
	PedalD: "pedal sensor D", PedalE: "pedal sensor E", Load: "engine load",
}

type Alarm struct {
	Since        signal.UnixMilli // 0 if none, or only a trouble code
	X, Y         signal.Signal    // the same if there is only one
	NameX, NameY string
	// Banded is set if a healthy Y is at most Free percent from Expected.
	Banded bool
	Free   float64
	line   PairMemory
}

// Expected returns what Y should read when X reads x percent, for a Banded alarm.
func (a *Alarm) Expected(x float64) float64 {
	return float64(a.line.MeanY) + float64(a.line.slope())*(x-float64(a.line.MeanX))
}

func (c Car) Alarmed() (alarm Alarm) {
	a := &c.Alarm
	if a.Since == 0 {
		return Alarm{}
	}
	alarm.Since = a.Since
	x, y := a.X, a.Y
	if i := a.pair(); i >= 0 {
		d, p := &pairs[i], &c.Pairs[i]
		x, y = d.x, d.y
		alarm.Banded, alarm.Free, alarm.line = p.mature(), float64(d.free), *p
	}
	alarm.X, alarm.Y, alarm.NameX, alarm.NameY = signals[x], signals[y], sensorWords[x], sensorWords[y]
	return alarm
}
