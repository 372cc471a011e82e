package vehicle

import (
	"fmt"
	"math"
	"time"

	"example.org/carstate/internal/signal"
)

const (
	RuleIgnitionOff  = "driving/ignition-off"
	RuleEngineAtRest = "driving/engine-at-rest"
	RuleStandstill   = "driving/standstill"
	RuleTraffic      = "driving/traffic"
)

// ExplainDriving has a Text, but no Rule and no Facts without a verdict.
func (s *State) ExplainDriving() signal.Explanation {
	e := signal.Explanation{Version: DrivingRules}
	v := s.Driving()
	at := s.Traffic.At
	ignition := s.Latest[signal.LowVoltageSystemState]
	switch {
	case s.ignitionOff():
		e.Rule, e.Text = RuleIgnitionOff, fmt.Sprintf("not driving: the ignition is %s", signal.Ignition(ignition.Value))
		e.Facts = []signal.Fact{fact(signal.LowVoltageSystemState, ignition)}
		if _, ok := s.Latest.Speed(); ok {
			e.Facts = append(e.Facts, s.speedFact(signal.MovingKmh, "drives from"))
		}
	case v.Time == 0:
		e.Text = "no verdict: no speed was read, and no two positions that show one"
	case v.NotDriving && !s.resting():
		stood := at.Sub(s.Traffic.Stood)
		e.Rule, e.Text = RuleStandstill, fmt.Sprintf("not driving: the car has stood for %d min, "+
			"and neither engine nor ignition says that it waits", stood/time.Minute)
		e.Facts = []signal.Fact{
			s.speedFact(stationaryBelow, "stationary below"),
			signal.NewFact("time stationary", stood.Seconds(), "s", s.parksAfter().Seconds(), "parked from", at),
		}
	case v.NotDriving:
		rested := at.Sub(s.RestingSince)
		e.Rule, e.Text = RuleEngineAtRest,
			fmt.Sprintf("not driving: the car has stood with its engine off for %d min", rested/time.Minute)
		e.Facts = []signal.Fact{
			s.speedFact(signal.MovingKmh, "drives from"),
			fact(signal.EngineSpeed, s.Latest[signal.EngineSpeed]),
			signal.NewFact("time at rest", rested.Seconds(), "s", restAfter.Seconds(), "parked from", at),
		}
	default:
		e.Rule, e.Text, e.Facts = RuleTraffic, s.trafficText(at), s.trafficFacts(at)
	}
	return e
}

func (s *State) trafficFacts(t signal.UnixMilli) []signal.Fact {
	m := &s.Traffic
	facts := []signal.Fact{
		signal.NewFact("share of the free flow", signal.Rounded(100*m.Share), "percent", 100*float64(float32(JamShare)), "jam up to", t),
		signal.NewFact("share of the free flow", signal.Rounded(100*m.Share), "percent", math.Round(100*SlowShare), "slow up to", t),
		signal.NewFact("speed when traffic is light, "+freeFlowWords[m.Source].fact, signal.Rounded(m.FreeKmh), "km/h", math.NaN(), "",
			s.roadTime(t)),
		s.speedFact(float32(math.NaN()), ""),
		signal.NewFact("mean speed of about a minute", signal.Rounded(s.MeanSpeed), "km/h", math.NaN(), "", t),
		signal.NewFact("time since the drive began", t.Sub(m.Start).Seconds(), "s", firstMinute.Seconds(), "may be a jam from", t),
	}
	if s.seenByOthers(t) {
		facts = append(facts, signal.NewFact("cars that show it, about", float64(s.Road.Cars), "", math.NaN(), "", s.Road.Time))
	}
	if m.Changed != 0 {
		facts = append(facts, signal.NewFact("time since the verdict changed", t.Sub(m.Changed).Seconds(), "s", paceHolds.Seconds(),
			"changes freely from", t))
	}
	return facts
}

var freeFlowWords = [NumFreeFlowSources]struct{ fact, sentence string }{
	FreeFlowOfStreet: {"of a street", "the road is unknown, and a street allows about %.0f km/h"},
	FreeFlowShown:    {"as this car showed", "the road that it drove lately allows %.0f km/h"},
	FreeFlowSent:     {"as its source says", "its source says that the road allows %.0f km/h"},
	FreeFlowOfRoad:   {"as seen on this road", "the road flows at %.0f km/h when free"},
}

const longBegun = 2 * time.Minute

func (s *State) trafficText(t signal.UnixMilli) string {
	m, others := &s.Traffic, s.seenByOthers(t)
	if m.MeanSeconds == 0 && !others {
		why := "the drive has just begun, and nothing is known of traffic yet"
		if t.Sub(m.Start) > longBegun {
			why = "too little is known of how this car drives"
		}
		return fmt.Sprintf("%s: %s", s.Pace, why)
	}
	traffic := "this car has averaged"
	if others {
		traffic = "traffic here moves at"
	}
	text := fmt.Sprintf("%s: %s %.0f km/h; "+freeFlowWords[m.Source].sentence+" (%.0f %%)", s.Pace, traffic,
		m.Share*m.FreeKmh, m.FreeKmh, 100*m.Share)
	if others {
		text += fmt.Sprintf("; about %d cars in the last minutes", s.Road.Cars)
	}
	if s.Way.Distrusted {
		text += "; its speeds contradict its positions, which are believed"
	}
	if others && s.Road.Apart >= apartFrom {
		text += "; it drives in another stream than these"
	}
	if m.Source == FreeFlowOfRoad && s.Road.Young {
		text += "; the road is young: it was not seen free yet"
	}
	if want := StateOfShare(m.Share); want != s.Pace {
		why := "not clearly so soon after a change"
		switch {
		case !others && s.isTooYoung(want, t) && s.Way.Time != 0 && !s.Way.OnRoad:
			why = "the car has not left the place where its drive began"
		case !others && s.isTooYoung(want, t):
			why = "the drive has just begun"
		case !others && s.knowsRoad(t) && want > StateOfShare(m.TopKmh*perCruise/m.FreeKmh):
			why = fmt.Sprintf("it reached %.0f km/h between its stops", m.TopKmh)
		}
		text += fmt.Sprintf("; that is %s, but %s", want, why)
	}
	return text
}

func fact(g signal.Signal, r signal.Reading) signal.Fact {
	return signal.NewFact(g.String(), float64(r.Value), g.Unit(), math.NaN(), "", r.Time)
}

func (s *State) speedFact(threshold float32, limit string) signal.Fact {
	if last, _ := s.Latest.Speed(); s.Traffic.At > last.Time || s.Way.Distrusted {
		return signal.NewFact("speed, as its positions show it", float64(s.Traffic.Kmh), "km/h", float64(threshold), limit, s.Traffic.At)
	}
	g := signal.Speed
	if s.Latest[signal.OBDSpeed].Time > s.Latest[signal.Speed].Time {
		g = signal.OBDSpeed
	}
	f := fact(g, s.Latest[g])
	f.Threshold, f.Limit = float64(threshold), limit
	return f
}
