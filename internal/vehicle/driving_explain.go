package vehicle

import (
	"fmt"
	"math"
	"time"
)

// Names of the driving rules.
const (
	RuleIgnitionOff  = "driving/ignition-off"
	RuleEngineAtRest = "driving/engine-at-rest"
	RuleStandstill   = "driving/standstill"
	RuleTraffic      = "driving/traffic"
)

// ExplainDriving says why [State.Driving] answers as it does. It is made when it
// is asked for, and kept nowhere. Without a verdict its Rule is empty.
func (s *State) ExplainDriving() Explanation {
	v := s.Driving()
	speed, ok := s.speed()
	ignition := s.Latest[LowVoltageSystemState]
	switch {
	case s.ignitionOff():
		e := Explanation{Rule: RuleIgnitionOff, Version: DrivingRules,
			Text:  fmt.Sprintf("not driving: the ignition is %s", Ignition(ignition.Value)),
			Facts: []Fact{fact(LowVoltageSystemState, ignition)}}
		if ok {
			e.Facts = append(e.Facts, s.speedFact(moving))
		}
		return e
	case v.Time == 0:
		return Explanation{Version: DrivingRules, Text: "no verdict: no speed was read"}
	case v.NotDriving && !s.resting():
		stood := speed.Time.Sub(s.Traffic.Stood)
		return Explanation{Rule: RuleStandstill, Version: DrivingRules,
			Text: fmt.Sprintf("not driving: the car has stood for %s, and neither engine nor ignition says that it waits", stood.Round(time.Second)),
			Facts: []Fact{
				s.speedFact(stands),
				{"time standing", stood.Seconds(), "s", s.parksAfter().Seconds(), speed.Time},
			}}
	case v.NotDriving:
		rested := speed.Time.Sub(s.RestingSince)
		return Explanation{Rule: RuleEngineAtRest, Version: DrivingRules,
			Text: fmt.Sprintf("not driving: the car has stood with its engine off for %s", rested.Round(time.Second)),
			Facts: []Fact{
				s.speedFact(moving),
				fact(EngineSpeed, s.Latest[EngineSpeed]),
				{"time at rest", rested.Seconds(), "s", restAfter.Seconds(), speed.Time},
			}}
	}
	return s.explainTraffic(&standardRules, speed)
}

func (s *State) explainTraffic(r *rules, speed Reading) Explanation {
	m, t := &s.Traffic, speed.Time
	jam, slow, sluggish := r.jamAt, r.slowAt, r.sluggishAt
	if s.Pace == TrafficJam {
		jam = r.jamUntil
	}
	if s.Pace != NormalDriving {
		slow, sluggish = r.slowUntil, r.sluggishUntil
	}
	free := Fact{"free flow, assumed", rounded(s.freeFlow(r, t)), "km/h", math.NaN(), 0}
	if m.Cruise > 0 {
		free.Time = t
	}
	if s.knowsFreeFlow(t) {
		free = fact(FreeFlowSpeed, s.Latest[FreeFlowSpeed])
	}
	facts := []Fact{
		s.speedFact(r.creep * s.scale(r, t).creep),
		{"evidence of a jam", rounded(m.Evidence), "s", float64(jam), t},
		{"evidence, for slow driving", rounded(m.Evidence), "s", float64(slow), t},
		{"time not under way", rounded(m.Sluggish), "s", float64(sluggish), t},
		{"mean speed of about 20 s", rounded(s.MeanSpeed), "km/h", float64(r.slowMoves), t},
		{"time standing or at walking pace", rounded(m.Stop), "s", float64(r.stopCounts), t},
		free,
		{"time since the drive began", t.Sub(m.Start).Seconds(), "s", r.settle.Seconds(), t},
	}
	if m.Changed != 0 {
		facts = append(facts, Fact{"time since the verdict changed", t.Sub(m.Changed).Seconds(), "s", r.hold.Seconds(), t})
	}
	return Explanation{Rule: RuleTraffic, Version: DrivingRules, Text: s.trafficText(r, t, jam), Facts: facts}
}

// trafficText says what decided between normal, slow and jam.
func (s *State) trafficText(r *rules, t UnixMilli, jam float32) string {
	m := &s.Traffic
	said := fmt.Sprintf("%s: %.0f s of evidence of a jam from creeping and standing", s.Pace, m.Evidence)
	want := s.wants(r, t)
	switch {
	case want != s.Pace:
		return fmt.Sprintf("%s for now: the readings say %s, but a verdict stands for at least %s", s.Pace, want, r.hold)
	case s.Pace == TrafficJam:
		return fmt.Sprintf("%s, and it takes less than %.0f s to end it", said, jam)
	case s.Pace == SlowDriving && m.Evidence < r.slowUntil:
		return fmt.Sprintf("%s: not under way for %.0f s", s.Pace, m.Sluggish)
	case m.Evidence >= jam:
		return fmt.Sprintf("%s, but the first %s of a drive are never a jam", said, r.settle)
	}
	return fmt.Sprintf("%s, less than the %.0f s of a jam", said, jam)
}

// fact makes a Fact of a signal's reading.
func fact(g Signal, r Reading) Fact {
	return Fact{g.String(), float64(r.Value), g.Unit(), math.NaN(), r.Time}
}

// speedFact is the newest speed and what it is compared with.
func (s *State) speedFact(threshold float32) Fact {
	g := Speed
	if s.Latest[OBDSpeed].Time > s.Latest[Speed].Time {
		g = OBDSpeed
	}
	f := fact(g, s.Latest[g])
	f.Threshold = float64(threshold)
	return f
}
