package vehicle

import (
	"fmt"
	"math"
)

// ExplainThrottle says why [State.Throttle] gives its verdict: the rule, the
// readings and the measures behind an anomaly; what every rule measures, and how
// much it would take, where there is none.
func (s *State) ExplainThrottle() Explanation {
	m := s.ThrottleMemory
	m.judge(s)
	switch {
	case s.FaultCode != (TroubleCode{}):
		e := explain(RuleTroubleCode)
		e.Text += ": " + s.FaultCode.String()
		e.Facts = []Fact{{"trouble codes in the list", float64(s.Latest[DTCList].Value), "", math.NaN(), s.Latest[DTCList].Time}}
		if gone := m.CodeGone; gone != 0 {
			e.Facts = append(e.Facts, Fact{"time since the lists are without", s.Time.Sub(gone).Seconds(), "s", codeGoneFor.Seconds(), s.Time})
		}
		return e
	case m.Alarm.Since != 0:
		e := explain(m.Alarm.Rule)
		e.Text += ": " + sensorNames(m.Alarm.X, m.Alarm.Y)
		e.Facts = m.alarmFacts(s)
		return e
	}
	e := explain(NoThrottleRule)
	if t := s.plateTime(); t == 0 {
		e.Text = "no reading of a throttle plate"
	}
	e.Facts = m.measures(s)
	return e
}

func explain(r ThrottleRule) Explanation {
	return Explanation{Rule: throttleRules[r].name, Version: throttleRules[r].version, Text: throttleRules[r].text}
}

// alarmFacts are what the standing anomaly was raised on, and how it is now.
func (m *ThrottleMemory) alarmFacts(s *State) []Fact {
	a := &m.Alarm
	x, y := throttleSensors[a.X], throttleSensors[a.Y]
	facts := []Fact{{x.String() + " when raised", float64(a.ValueX), "percent", math.NaN(), a.Since}}
	if x != y {
		facts = append(facts, Fact{y.String() + " when raised", float64(a.ValueY), "percent", math.NaN(), a.Since})
	}
	if a.Expected != 0 {
		facts = append(facts, Fact{y.String() + " expected then", float64(a.Expected), "percent", math.NaN(), a.Since})
	}
	facts = append(facts, Fact{x.String(), float64(s.Latest[x].Value), "percent", math.NaN(), s.Latest[x].Time})
	if x != y {
		facts = append(facts, Fact{y.String(), float64(s.Latest[y].Value), "percent", math.NaN(), s.Latest[y].Time})
	}
	for _, f := range m.findings(s) {
		if f.rule == a.Rule && f.x == a.X && f.y == a.Y {
			facts = append(facts, Fact{"measure when raised", rounded(a.Measure), f.unit, float64(f.alarm), a.Since})
			facts = append(facts, f.fact(a.Looked))
			break
		}
	}
	return append(facts, Fact{"looked at without evidence for", rounded(a.Calm), "s", calmFor, a.Looked})
}

// measures are those of all rules that have readings to look at.
func (m *ThrottleMemory) measures(s *State) (facts []Fact) {
	for _, f := range m.findings(s) {
		facts = append(facts, f.fact(max(s.reading(f.x).Time, s.reading(f.y).Time)))
	}
	return facts
}

// findings are the measures of all sensors and pairs that were ever read.
func (m *ThrottleMemory) findings(s *State) (all []finding) {
	for i := range m.Pairs {
		if m.Pairs[i].Last != 0 {
			pair := m.pairFindings(i)
			all = append(all, pair[:]...)
		}
	}
	for i := range Load {
		if s.reading(i).Time != 0 {
			all = append(all, m.limitFinding(s, i))
			travel := m.travelFindings(s, i)
			all = append(all, travel[0])
			if travel[1].y != i { // else it repeats the first
				all = append(all, travel[1])
			}
		}
	}
	if m.Follow.Demand != PlateA { // a rise of something was ever looked for
		all = append(all, m.followFinding())
	}
	return all
}

// fact puts a finding into words.
func (f finding) fact(t UnixMilli) Fact {
	name := fmt.Sprintf("%s: %s", f.rule, sensorNames(f.x, f.y))
	return Fact{name, rounded(f.measure), f.unit, float64(f.alarm), t}
}

// sensorNames names a sensor and the one that it was held against, if any.
func sensorNames(x, y ThrottleSensor) string {
	if x == y {
		return throttleSensors[x].String()
	}
	return throttleSensors[x].String() + " beside " + throttleSensors[y].String()
}
