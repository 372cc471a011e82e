package driving

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

// Explain without a verdict has a Text, but no Rule and no Facts.
func (c Car) Explain() signal.Explanation {
	e := signal.Explanation{Version: Version}
	v := c.Verdict()
	at := c.Traffic.At
	ignition := c.Latest[signal.LowVoltageSystemState]
	switch {
	case c.IgnitionOff():
		e.Rule, e.Text = RuleIgnitionOff, fmt.Sprintf("not driving: the ignition is %s", signal.Ignition(ignition.Value))
		e.Facts = []signal.Fact{fact(signal.LowVoltageSystemState, ignition)}
		if _, ok := c.Latest.Speed(); ok {
			e.Facts = append(e.Facts, c.speedFact(signal.MovingKmh, "drives from"))
		}
	case v.Time == 0:
		e.Text = "no verdict: no speed was read, and no two positions that show one"
	case v.NotDriving && !c.resting():
		stood := at.Sub(c.Traffic.Stood)
		e.Rule, e.Text = RuleStandstill, fmt.Sprintf("not driving: the car has stood for %d min, "+
			"and neither engine nor ignition says that it waits", stood/time.Minute)
		e.Facts = []signal.Fact{
			c.speedFact(stationaryBelow, "stationary below"),
			signal.NewFact("time stationary", stood.Seconds(), "s", c.parksAfter().Seconds(), "parked from", at),
		}
	case v.NotDriving:
		rested := at.Sub(c.RestingSince)
		e.Rule, e.Text = RuleEngineAtRest,
			fmt.Sprintf("not driving: the car has stood with its engine off for %d min", rested/time.Minute)
		e.Facts = []signal.Fact{
			c.speedFact(signal.MovingKmh, "drives from"),
			fact(signal.EngineSpeed, c.Latest[signal.EngineSpeed]),
			signal.NewFact("time at rest", rested.Seconds(), "s", restAfter.Seconds(), "parked from", at),
		}
	default:
		e.Rule, e.Text, e.Facts = RuleTraffic, c.trafficText(at), c.trafficFacts(at)
	}
	return e
}

func (c Car) trafficFacts(t signal.UnixMilli) []signal.Fact {
	m := &c.Traffic
	facts := []signal.Fact{
		signal.NewFact("share of the free flow", signal.Rounded(100*m.Share), "percent", 100*float64(float32(JamShare)), "jam up to", t),
		signal.NewFact("share of the free flow", signal.Rounded(100*m.Share), "percent", math.Round(100*SlowShare), "slow up to", t),
		signal.NewFact("speed when traffic is light, "+freeFlowWords[m.Source].fact, signal.Rounded(m.FreeKmh), "km/h", math.NaN(), "",
			c.roadTime(t)),
		c.speedFact(float32(math.NaN()), ""),
		signal.NewFact("mean speed of about a minute", signal.Rounded(c.MeanSpeed), "km/h", math.NaN(), "", t),
		signal.NewFact("time since the drive began", t.Sub(m.Start).Seconds(), "s", firstMinute.Seconds(), "may be a jam from", t),
	}
	if c.seenByOthers(t) {
		facts = append(facts, signal.NewFact("cars that show it, about", float64(c.Road.Cars), "", math.NaN(), "", c.Road.Time))
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

func (c Car) trafficText(t signal.UnixMilli) string {
	m, others := &c.Traffic, c.seenByOthers(t)
	if m.MeanSeconds == 0 && !others {
		why := "the drive has just begun, and nothing is known of traffic yet"
		if t.Sub(m.Start) > longBegun {
			why = "too little is known of how this car drives"
		}
		return fmt.Sprintf("%s: %s", c.Pace, why)
	}
	traffic := "this car has averaged"
	if others {
		traffic = "traffic here moves at"
	}
	text := fmt.Sprintf("%s: %s %.0f km/h; "+freeFlowWords[m.Source].sentence+" (%.0f %%)", c.Pace, traffic,
		m.Share*m.FreeKmh, m.FreeKmh, 100*m.Share)
	if others {
		text += fmt.Sprintf("; about %d cars in the last minutes", c.Road.Cars)
	}
	if c.Way.Distrusted {
		text += "; its speeds contradict its positions, which are believed"
	}
	if others && c.Road.Apart >= apartFrom {
		text += "; it drives in another stream than these"
	}
	if m.Source == FreeFlowOfRoad && c.Road.Young {
		text += "; the road is young: it was not seen free yet"
	}
	if want := StateOfShare(m.Share); want != c.Pace {
		why := "not clearly so soon after a change"
		switch {
		case !others && c.isTooYoung(want, t) && c.Way.Time != 0 && !c.Way.OnRoad:
			why = "the car has not left the place where its drive began"
		case !others && c.isTooYoung(want, t):
			why = "the drive has just begun"
		case !others && c.knowsRoad(t) && want > StateOfShare(m.TopKmh*perCruise/m.FreeKmh):
			why = fmt.Sprintf("it reached %.0f km/h between its stops", m.TopKmh)
		}
		text += fmt.Sprintf("; that is %s, but %s", want, why)
	}
	return text
}

func fact(g signal.Signal, r signal.Reading) signal.Fact {
	return signal.NewFact(g.String(), float64(r.Value), g.Unit(), math.NaN(), "", r.Time)
}

func (c Car) speedFact(threshold float32, limit string) signal.Fact {
	if last, _ := c.Latest.Speed(); c.Traffic.At > last.Time || c.Way.Distrusted {
		return signal.NewFact("speed, as its positions show it", float64(c.Traffic.Kmh), "km/h", float64(threshold), limit, c.Traffic.At)
	}
	g := signal.Speed
	if c.Latest[signal.OBDSpeed].Time > c.Latest[signal.Speed].Time {
		g = signal.OBDSpeed
	}
	f := fact(g, c.Latest[g])
	f.Threshold, f.Limit = float64(threshold), limit
	return f
}
