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

// ExplainDriving returns why [State.Driving] gives its verdict. The explanation is computed on
// request and not stored. If there is no verdict, the explanation has a Text, but no Rule and no
// Facts.
func (s *State) ExplainDriving() Explanation {
	v := s.Driving()
	speed, ok := s.Speed()
	ignition := s.Latest[LowVoltageSystemState]
	switch {
	case s.ignitionOff():
		e := Explanation{Rule: RuleIgnitionOff, Version: DrivingRules,
			Text:  fmt.Sprintf("not driving: the ignition is %s", Ignition(ignition.Value)),
			Facts: []Fact{fact(LowVoltageSystemState, ignition)}}
		if ok {
			e.Facts = append(e.Facts, s.speedFact(moving, "drives from"))
		}
		return e
	case v.Time == 0:
		return Explanation{Version: DrivingRules, Text: "no verdict: no speed was read"}
	case v.NotDriving && !s.resting():
		stood := speed.Time.Sub(s.Traffic.Stood)
		return Explanation{Rule: RuleStandstill, Version: DrivingRules,
			Text: fmt.Sprintf("not driving: the car has stood for %d min, "+
				"and neither engine nor ignition says that it waits", stood/time.Minute),
			Facts: []Fact{
				s.speedFact(stationaryBelow, "stationary below"),
				{"time stationary", stood.Seconds(), "s", s.parksAfter().Seconds(), "parked from", speed.Time},
			}}
	case v.NotDriving:
		rested := speed.Time.Sub(s.RestingSince)
		return Explanation{Rule: RuleEngineAtRest, Version: DrivingRules,
			Text: fmt.Sprintf("not driving: the car has stood with its engine off for %d min", rested/time.Minute),
			Facts: []Fact{
				s.speedFact(moving, "drives from"),
				fact(EngineSpeed, s.Latest[EngineSpeed]),
				{"time at rest", rested.Seconds(), "s", restAfter.Seconds(), "parked from", speed.Time},
			}}
	}
	return s.explainTraffic(speed)
}

func (s *State) explainTraffic(speed Reading) Explanation {
	m, t := &s.Traffic, speed.Time
	facts := []Fact{
		{"share of the free flow", rounded(100 * m.Share), "percent", 100 * float64(float32(JamShare)), "jam up to", t},
		{"share of the free flow", rounded(100 * m.Share), "percent", math.Round(100 * SlowShare), "slow up to",
			t},
		{"speed when traffic is light, " + freeFlowWords[m.Source], rounded(m.FreeKmh), "km/h", math.NaN(), "",
			s.roadTime(t)},
		s.speedFact(float32(math.NaN()), ""),
		{"mean speed of about a minute", rounded(s.MeanSpeed), "km/h", math.NaN(), "", t},
		{"time since the drive began", t.Sub(m.Start).Seconds(), "s", firstMinute.Seconds(), "may be a jam from", t},
	}
	if s.seenByOthers(t) {
		facts = append(facts, Fact{"cars that show it, about", float64(s.Road.Cars), "", math.NaN(), "", s.Road.Time})
	}
	if m.Changed != 0 {
		facts = append(facts, Fact{"time since the verdict changed", t.Sub(m.Changed).Seconds(), "s", hold.Seconds(),
			"changes freely from", t})
	}
	return Explanation{Rule: RuleTraffic, Version: DrivingRules, Text: s.trafficText(t), Facts: facts}
}

var freeFlowWords = [NumFreeFlowSources]string{
	FreeFlowOfStreet: "of a street",
	FreeFlowShown:    "as this car showed",
	FreeFlowSent:     "as its source says",
	FreeFlowOfRoad:   "as seen on this road",
}

// trafficText returns the sentence that says what decided between normal, slow and jam.
func (s *State) trafficText(t UnixMilli) string {
	m := &s.Traffic
	if m.MeanSeconds == 0 && !s.seenByOthers(t) {
		return fmt.Sprintf("%s: the drive has just begun, and nothing is known of traffic yet", s.Pace)
	}
	traffic, road := "this car has averaged", "the road is unknown, and a street allows about %.0f km/h"
	switch m.Source {
	case FreeFlowShown:
		road = "the road that it drove lately allows %.0f km/h"
	case FreeFlowSent:
		road = "its source says that the road allows %.0f km/h"
	case FreeFlowOfRoad:
		road = "the road flows at %.0f km/h when free"
	}
	if s.seenByOthers(t) {
		traffic = "traffic here moves at"
	}
	text := fmt.Sprintf("%s: %s %.0f km/h; "+road+" (%.0f %%)", s.Pace, traffic, m.Share*m.FreeKmh, m.FreeKmh,
		100*m.Share)
	if s.seenByOthers(t) {
		text += fmt.Sprintf("; about %d cars in the last minutes", s.Road.Cars)
	}
	if m.Source == FreeFlowOfRoad && s.Road.Young {
		text += "; the road is young: it was not seen free yet"
	}
	if want := StateOfShare(m.Share); want != s.Pace {
		if !s.seenByOthers(t) && s.isTooYoung(want, t) {
			return text + fmt.Sprintf("; that is %s, but the drive has just begun", want)
		}
		return text + fmt.Sprintf("; that is %s, but not clearly so soon after a change", want)
	}
	return text
}

func fact(g Signal, r Reading) Fact {
	return Fact{g.String(), float64(r.Value), g.Unit(), math.NaN(), "", r.Time}
}

// speedFact returns the newest speed as a Fact. The threshold, in km/h, is the value with which the
// speed is compared, or NaN. The parameter limit becomes the Limit of the Fact: it says what the
// threshold means, such as "drives from".
func (s *State) speedFact(threshold float32, limit string) Fact {
	g := Speed
	if s.Latest[OBDSpeed].Time > s.Latest[Speed].Time {
		g = OBDSpeed
	}
	f := fact(g, s.Latest[g])
	f.Threshold, f.Limit = float64(threshold), limit
	return f
}
