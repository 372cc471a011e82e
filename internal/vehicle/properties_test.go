package vehicle_test

import (
	"flag"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// TestMain makes rapid draw more than 100 drives, because the rules depend on rare coincidences.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	m.Run()
}

// check fails the test if an invariant of all states is violated.
func check(t interface{ Fatalf(string, ...any) }, s vehicle.State) {
	finite(t, reflect.ValueOf(s), "State")
	for i, r := range s.Latest {
		g := signal.Signal(i)
		disproved := g == signal.LowVoltageSystemState && r.Value == float32(signal.IgnitionUndefined)
		if r.Time != 0 && new(signal.Readings).Set(g, float64(r.Value)) != nil && !disproved {
			t.Fatalf("%s: got %g, want it within its range", g, r.Value)
		}
		if r.Time < 0 || r.Time > s.Time {
			t.Fatalf("%s: got it read at %d, want 0 to %d", g, r.Time, s.Time)
		}
	}
	if s.MeanSpeed < 0 || s.MeanSpeed > 500 {
		t.Fatalf("the mean speed: got %g, want 0 to 500", s.MeanSpeed)
	}
	newest, speedRead := s.Latest.Speed()
	if s.Pace > driving.Jam || (s.Pace != 0) != speedRead {
		t.Fatalf("the pace: got %d, want one if a speed was read: %t", s.Pace, speedRead)
	}

	d := s.Driving()
	// The time of a speed that was held is that of another, earlier reading.
	read := func(g signal.Signal) bool { return s.Latest[g].Time == d.Time }
	if held := s.Traffic.At > newest.Time; d.Time != 0 && !held && !slices.ContainsFunc(everySignal[:], read) {
		t.Fatalf("the driving verdict: got the time %d, want that of a reading", d.Time)
	}
	if d.State != 0 && d.NotDriving || d.Time == 0 && d != (vehicle.DrivingVerdict{}) ||
		d.Time != 0 && d.State == 0 && !d.NotDriving || speedRead && d.Time == 0 || d.Time > s.Time {
		t.Fatalf("the driving verdict: got %+v at %d, want it consistent, speed read: %v", d, s.Time, speedRead)
	}
	e := s.ExplainDriving()
	if (d.Time != 0) != (e.Rule != "") || e.Text == "" ||
		d.State != 0 && (e.Rule != driving.RuleTraffic || !strings.HasPrefix(e.Text, d.State.String())) {
		t.Fatalf("the verdict %+v: got the explanation %+v, want one that fits", d, e)
	}
	checkFacts(t, s, e)

	plate := signal.UnixMilli(0)
	for _, g := range [...]signal.Signal{signal.ThrottlePosition, signal.ThrottlePositionB,
		signal.RelativeThrottlePosition, signal.ThrottleActuator} {
		plate = max(plate, s.Latest[g].Time)
	}
	h := s.Throttle()
	if want := (vehicle.ThrottleVerdict{System: throttle.Anomaly, Time: s.Time}); h != want &&
		h != (vehicle.ThrottleVerdict{System: throttle.Normal, Time: plate}) {
		t.Fatalf("the throttle verdict: got %+v, want %+v or normal of %d", h, want, plate)
	}
	e = s.ExplainThrottle()
	if (h.System == throttle.Anomaly) != (e.Rule != "throttle/none") || e.Version < 1 || e.Text == "" {
		t.Fatalf("the verdict %+v: got the explanation %+v, want one that fits", h, e)
	}
	told := map[string]bool{}
	for _, f := range e.Facts {
		if told[f.Name+f.Unit] || f.Value < 0 || f.Value > 0 && f.Value < 0.001 && f.Threshold > 0 {
			t.Fatalf("the fact: got %+v, want it once, not negative or tiny, in %+v", f, e.Facts)
		}
		told[f.Name+f.Unit] = true
	}
	checkFacts(t, s, e)
}

func checkFacts(t interface{ Fatalf(string, ...any) }, s vehicle.State, e signal.Explanation) {
	for _, f := range e.Facts {
		if f.Name == "" || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Time > s.Time {
			t.Fatalf("the fact: got %+v, want it named and finite, at most of %d", f, s.Time)
		}
	}
}

func finite(t interface{ Fatalf(string, ...any) }, v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			finite(t, v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Array:
		for i := range v.Len() {
			finite(t, v.Index(i), name)
		}
	case reflect.Float32:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			t.Fatalf("%s: got %g, want a finite number", name, f)
		}
	}
}

var everySignal = func() (all [signal.Num]signal.Signal) {
	for i := range all {
		all[i] = signal.Signal(i)
	}
	return all
}()

// genReadings draws values in their range, many at the thresholds of the rules.
func genReadings(t *rapid.T) signal.Readings {
	var r signal.Readings
	for g := range signal.Signal(signal.Num) {
		if !rapid.Bool().Draw(t, g.String()) {
			continue
		}
		var err error
		switch g {
		case signal.DTCList:
			err = r.SetCodes(rapid.SliceOfN(rapid.SampledFrom(someCodes), 0, 3).Draw(t, "codes"))
		case signal.LowVoltageSystemState:
			err = r.SetIgnition(rapid.SampledFrom([]string{"LOCK", "OFF", "ACC", "ON", "START"}).Draw(t, "ignition"))
		default:
			var lo, hi float64
			if _, err := fmt.Sscanf(g.Range(), "between %g and %g", &lo, &hi); err != nil {
				t.Fatalf("the range of %s: got %v, want no error", g, err)
			}
			err = r.Set(g, rapid.OneOf(
				rapid.SampledFrom([]float64{lo, hi, min(hi, 3), min(hi, 6), min(hi, 17.5)}),
				rapid.Float64Range(lo, hi),
			).Draw(t, "value"))
		}
		if err != nil {
			t.Fatalf("%s: got %v, want no error", g, err)
		}
	}
	return r
}

var someCodes = []signal.TroubleCode{{'P', '0', '1', '2', '0'}, {'P', '2', '1', '7', '6'}, {'P', '0', '3', '0', '0'},
	{'U', '0', '1', '0', '0'}}

// steps are milliseconds, many near the thresholds of the rules.
var steps = rapid.OneOf(
	rapid.SampledFrom([]int64{0, 1, 1000, 30_000, 30_001, 75_000, 75_001, 300_000, 600_000, 600_001, 3_600_001}),
	rapid.Int64Range(0, 1_000_000),
)

func genState(t *rapid.T) vehicle.State {
	var s vehicle.State
	at := signal.UnixMilli(1_800_000_000_000)
	for range rapid.IntRange(0, 12).Draw(t, "samples") {
		at += signal.UnixMilli(steps.Draw(t, "step"))
		s = fold(t, s, vehicle.Sample{Vehicle: "car", Time: at, Readings: genReadings(t)})
	}
	return s
}

// fold checks that the state is valid, that Fold reports whether it changed, and that older samples
// and the same sample again change nothing.
func fold(t interface{ Fatalf(string, ...any) }, s vehicle.State, x vehicle.Sample) vehicle.State {
	next := s
	if changed := next.Fold(&x); changed != (next != s) {
		t.Fatalf("Fold from %+v to %+v: got changed %t, want %t", s, next, changed, next != s)
	}
	check(t, next)
	late := !slices.ContainsFunc(everySignal[:], func(g signal.Signal) bool { return x.Has(g) && x.Time >= newest(s, g) })
	if late && next != s {
		t.Fatalf("a late sample: got %+v, want %+v", next, s)
	}
	if again := vehicle.Observe(next, x); again != next {
		t.Fatalf("the same sample again: got %+v, want %+v", again, next)
	}
	return next
}

func set(t interface {
	Helper()
	Fatal(...any)
}, x *vehicle.Sample, g signal.Signal, v float64) {
	t.Helper()
	if err := x.Set(g, v); err != nil {
		t.Fatal("Set of ", g, ": got ", err, ", want no error")
	}
}

// groupOf numbers the groups of signals that may come from different senders.
func groupOf(g signal.Signal) int {
	switch g {
	case signal.Speed, signal.OBDSpeed, signal.EngineSpeed, signal.LowVoltageSystemState, signal.FreeFlowSpeed,
		signal.SpeedHolds:
		return 1
	case signal.CurrentLatitude, signal.CurrentLongitude, signal.CurrentHeading, signal.CurrentAccuracy:
		return 2
	}
	return 0
}

func newest(s vehicle.State, of signal.Signal) (t signal.UnixMilli) {
	for _, g := range everySignal {
		if groupOf(g) == groupOf(of) {
			t = max(t, s.Latest[g].Time)
		}
	}
	return t
}

// TestGroups checks that a late reading is ignored after a newer one of its group, and only then.
func TestGroups(t *testing.T) {
	read := func(s vehicle.State, g signal.Signal, at signal.UnixMilli) vehicle.State {
		x := vehicle.Sample{Vehicle: "car", Time: at}
		set(t, &x, g, 1)
		return vehicle.Observe(s, x)
	}
	for _, first := range everySignal {
		for _, late := range everySignal {
			s := read(read(vehicle.State{}, first, 2000), late, 1000)
			if got, want := s.Latest[late].Time == 1000, groupOf(first) != groupOf(late); got != want {
				t.Errorf("%s after %s: used %t, want %t", late, first, got, want)
			}
		}
	}
}
