package vehicle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// TestExplainDriving drives a car through each kind of explanation.
func TestExplainDriving(t *testing.T) {
	start := signal.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))
	at := start
	var s vehicle.State
	read := func(values map[signal.Signal]float64) {
		t.Helper()
		x := vehicle.Sample{Vehicle: "car", Time: at}
		for g, v := range values {
			set(t, &x, g, v)
		}
		s = vehicle.Observe(s, x)
	}
	drive := func(seconds int, kmh float64) {
		t.Helper()
		for range seconds {
			at = at.Add(time.Second)
			read(map[signal.Signal]float64{signal.Speed: kmh})
		}
	}
	want := func(rule, text string, facts ...string) {
		t.Helper()
		e := s.ExplainDriving()
		if e.Rule != rule || e.Version != driving.Version || !strings.Contains(e.Text, text) {
			t.Errorf("%s %d: %q, want %s: %q", e.Rule, e.Version, e.Text, rule, text)
		}
		for _, name := range facts {
			if !slices.ContainsFunc(e.Facts, func(f signal.Fact) bool { return f.Name == name && f.Time != 0 }) {
				t.Errorf("the facts: got %+v, want %q with a time", e.Facts, name)
			}
		}
	}
	want("", "no speed was read, and no two positions")
	drive(60, 50)
	want(driving.RuleTraffic, "normal driving: this car has averaged 50 km/h; ", "Vehicle.Speed",
		"mean speed of about a minute")
	drive(60, 12)
	want(driving.RuleTraffic, "slow driving: ", "share of the free flow", "time since the verdict changed")
	drive(90, 12)
	want(driving.RuleTraffic, "traffic jam: this car has averaged 14 km/h; the road that it drove lately allows 37 km/h (37 %)",
		"share of the free flow")
	drive(300, 60)
	read(map[signal.Signal]float64{signal.FreeFlowSpeed: 100})
	at = at.Add(time.Second)
	read(map[signal.Signal]float64{signal.FreeFlowSpeed: 100, signal.Speed: 60})
	want(driving.RuleTraffic,
		"slow driving: this car has averaged 60 km/h; its source says that the road allows 100 km/h (60 %)",
		"speed when traffic is light, as its source says")

	at = at.Add(time.Second)
	read(map[signal.Signal]float64{signal.Speed: 0, signal.EngineSpeed: 0})
	drive(301, 0)
	want(driving.RuleEngineAtRest, "engine off for 5 min", "Vehicle.OBD.EngineSpeed", "time at rest")
	at = at.Add(time.Second)
	read(map[signal.Signal]float64{signal.LowVoltageSystemState: float64(signal.IgnitionLock)})
	want(driving.RuleIgnitionOff, "the ignition is LOCK", "Vehicle.LowVoltageSystemState", "Vehicle.Speed")

	s = vehicle.State{}
	at = at.Add(time.Hour)
	drive(60, 40)
	drive(601, 0)
	want(driving.RuleStandstill, "stood for 10 min, and neither engine nor ignition", "Vehicle.Speed", "time stationary")

	s = vehicle.State{}
	at = at.Add(time.Hour)
	drive(300, 130)
	want(driving.RuleTraffic, "normal driving", "speed when traffic is light, as this car showed")
	if f := s.ExplainDriving().Facts[2]; f.Value != 82 {
		t.Errorf("free flow after 130 km/h: got %+v, want 82 km/h", f)
	}

	drive(3602, 0) // nobody parks on a motorway, so the verdict takes an hour
	want(driving.RuleStandstill, "stood for 60 min", "time stationary")
	if f := s.ExplainDriving().Facts[1]; f.Value < f.Threshold || f.Threshold != 3600 {
		t.Errorf("a standstill on a motorway: got %+v, want an hour", f)
	}
	drive(20, 40)
	want(driving.RuleTraffic, "a street allows about 33 km/h") // the drive before is forgotten

	s = vehicle.State{}
	at = at.Add(time.Hour)
	read(map[signal.Signal]float64{signal.Speed: 12})
	drive(59, 12)
	want(driving.RuleTraffic, "normal driving: this car has averaged 12 km/h; the road is unknown, and a street allows about 33 km/h (36 %); "+
		"that is traffic jam, but the drive has just begun")
}
