package vehicle

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestExplainDriving drives a car through each kind of explanation, and checks its rule, a part of
// its text, and that the expected facts are there, each with a time. It also checks that the free
// flow that a fast car shows is limited to mostAssumed, and that a new drive forgets Cruise.
func TestExplainDriving(t *testing.T) {
	start := At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))
	at := start
	var s State
	read := func(values map[Signal]float64) {
		t.Helper()
		x := Sample{Vehicle: "car", Time: at}
		for g, v := range values {
			if err := x.Set(g, v); err != nil {
				t.Fatal(err)
			}
		}
		s = Observe(s, x)
	}
	drive := func(seconds int, kmh float64) {
		t.Helper()
		for range seconds {
			at = at.Add(time.Second)
			read(map[Signal]float64{Speed: kmh})
		}
	}
	want := func(rule, text string, facts ...string) {
		t.Helper()
		e := s.ExplainDriving()
		if e.Rule != rule || e.Version != DrivingRules || !strings.Contains(e.Text, text) {
			t.Errorf("%s %d: %q, want %s: %q", e.Rule, e.Version, e.Text, rule, text)
		}
		for _, name := range facts {
			if !slices.ContainsFunc(e.Facts, func(f Fact) bool { return f.Name == name && f.Time != 0 }) {
				t.Errorf("no fact %q with a time in %+v", name, e.Facts)
			}
		}
	}
	want("", "no speed was read, and no two positions")
	drive(60, 50)
	want(RuleTraffic, "normal driving: this car has averaged 50 km/h; ", "Vehicle.Speed",
		"mean speed of about a minute")
	drive(60, 12)
	want(RuleTraffic, "slow driving: ", "share of the free flow", "time since the verdict changed")
	drive(90, 12)
	want(RuleTraffic, "traffic jam: this car has averaged 14 km/h; the road that it drove lately allows 37 km/h (37 %)",
		"share of the free flow")
	drive(300, 60)
	read(map[Signal]float64{FreeFlowSpeed: 100})
	at = at.Add(time.Second)
	read(map[Signal]float64{FreeFlowSpeed: 100, Speed: 60})
	want(RuleTraffic,
		"slow driving: this car has averaged 60 km/h; its source says that the road allows 100 km/h (60 %)",
		"speed when traffic is light, as its source says")

	at = at.Add(time.Second)
	read(map[Signal]float64{Speed: 0, EngineSpeed: 0})
	drive(301, 0)
	want(RuleEngineAtRest, "engine off for 5 min", "Vehicle.OBD.EngineSpeed", "time at rest")
	at = at.Add(time.Second)
	read(map[Signal]float64{LowVoltageSystemState: float64(IgnitionLock)})
	want(RuleIgnitionOff, "the ignition is LOCK", "Vehicle.LowVoltageSystemState", "Vehicle.Speed")

	s = State{}
	at = at.Add(time.Hour)
	drive(60, 40)
	drive(601, 0)
	want(RuleStandstill, "stood for 10 min, and neither engine nor ignition", "Vehicle.Speed", "time stationary")

	s = State{}
	at = at.Add(time.Hour)
	drive(300, 130)
	want(RuleTraffic, "normal driving", "speed when traffic is light, as this car showed")
	if free, _ := s.freeFlow(at); free != mostAssumed {
		t.Errorf("after 130 km/h a free flow of %g km/h is assumed", free)
	}

	drive(3602, 0) // nobody parks on a motorway, so the verdict takes an hour
	want(RuleStandstill, "stood for 60 min", "time stationary")
	if f := s.ExplainDriving().Facts[1]; f.Value < f.Threshold || f.Threshold != closedAfter.Seconds() {
		t.Errorf("a standstill on a motorway is explained by %+v", f)
	}
	drive(20, 40)
	if s.Traffic.Cruise > 40 {
		t.Errorf("the next drive remembers %g km/h of the one before", s.Traffic.Cruise)
	}

	s = State{}
	at = at.Add(time.Hour)
	read(map[Signal]float64{Speed: 12})
	drive(59, 12)
	want(RuleTraffic, "normal driving: this car has averaged 12 km/h; the road is unknown, and a street allows about 33 km/h (36 %); "+
		"that is traffic jam, but the drive has just begun")
}

// TestExplanationFitsTheVerdict checks for any drive that there is a rule if and only if there is
// a verdict, and that no fact is newer than the state.
func TestExplanationFitsTheVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		v, e := s.Driving(), s.ExplainDriving()
		if (v.Time != 0) != (e.Rule != "") || e.Text == "" {
			t.Fatalf("verdict %+v, explanation %+v", v, e)
		}
		if v.State != 0 && (e.Rule != RuleTraffic || !strings.HasPrefix(e.Text, v.State.String())) {
			t.Fatalf("%s is explained by %+v", v.State, e)
		}
		for _, f := range e.Facts {
			if f.Time > s.Time || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Name == "" {
				t.Fatalf("fact %+v at %d", f, s.Time)
			}
		}
	})
}
