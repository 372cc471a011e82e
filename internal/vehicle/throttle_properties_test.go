package vehicle

import (
	"math"
	"reflect"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// checkThrottle fails the test if the memory, verdict or explanation of the throttle rules
// violates an invariant of all states.
func checkThrottle(t interface{ Fatalf(string, ...any) }, s State) {
	finite(t, reflect.ValueOf(s.ThrottleMemory), "ThrottleMemory")
	m := &s.ThrottleMemory
	for i := range m.Pairs {
		p := &m.Pairs[i]
		if p.Weight < 0 || p.Weight > pairMemory*1.01 || p.Sxx < 0 || p.Disagreement < 0 ||
			p.Disagreement > disagreementAlarm {
			t.Fatalf("pair %d is %+v", i, *p)
		}
		if p.Last > s.Time || m.Last > s.Time || m.Alarm.Since > s.Time || m.Alarm.Seen > m.Alarm.Looked {
			t.Fatalf("a time after %d in %+v", s.Time, *m)
		}
	}
	if a := m.Alarm; (a.Since == 0) != (a.Rule == NoThrottleRule) || a.Rule >= numThrottleRules {
		t.Fatalf("alarm is %+v", a)
	}

	h := s.Throttle()
	if h.Time > s.Time {
		t.Fatalf("the throttle verdict's time %d is after %d", h.Time, s.Time)
	}
	if h.System == ThrottleNormal && h.Time != s.plateTime() {
		t.Fatalf("normal at %d, but the plate was read at %d", h.Time, s.plateTime())
	}
	if h.System == ThrottleAnomaly && h.Time != s.Time {
		t.Fatalf("an anomaly at %d, but the car reported at %d", h.Time, s.Time)
	}
	e := s.ExplainThrottle()
	if (h.System == ThrottleAnomaly) != (e.Rule != throttleRules[NoThrottleRule].name) || e.Version < 1 ||
		e.Text == "" {
		t.Fatalf("verdict %+v is explained as %+v", h, e)
	}
	told := map[string]bool{}
	for _, f := range e.Facts {
		if told[f.Name+f.Unit] || f.Value < 0 || f.Value > 0 && f.Value < 0.001 && f.Threshold > 0 {
			t.Fatalf("a fact told twice, negative or tiny: %+v of %+v", f, e.Facts)
		}
		told[f.Name+f.Unit] = true
		if f.Name == "" || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Time > s.Time {
			t.Fatalf("fact %+v", f)
		}
	}
}

func finite(t interface{ Fatalf(string, ...any) }, v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			finite(t, v.Field(i), name+"."+v.Type().Field(i).Name)
		}
	case reflect.Array:
		for i := range v.Len() {
			finite(t, v.Index(i), name)
		}
	case reflect.Float32:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			t.Fatalf("%s is %g", name, f)
		}
	}
}

// TestThrottleMemorySize checks that the memory of the throttle rules for one vehicle takes at most
// 1,024 bytes.
func TestThrottleMemorySize(t *testing.T) {
	if n := unsafe.Sizeof(ThrottleMemory{}); n > 1024 {
		t.Errorf("the throttle's memory takes %d bytes", n)
	}
}

// genPairs draws the state after 1 to 60 samples of the throttle's sensors at one interval, from
// 0.1 s to 60 s, in which a tenth of the readings are faulty.
func genPairs(t *rapid.T) State {
	var s State
	at := UnixMilli(1_800_000_000_000)
	step := rapid.SampledFrom([]int64{100, 450, 1000, 2000, 2400, 2600, 10_000, 60_000}).Draw(t, "step")
	position := 20.0
	for range rapid.IntRange(1, 60).Draw(t, "samples") {
		at += UnixMilli(step)
		if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
			position = rapid.Float64Range(16, 60).Draw(t, "position")
		}
		var r Readings
		for i, g := range throttleSensors {
			if !rapid.Bool().Draw(t, "read") {
				continue
			}
			v := position + float64(i)
			if rapid.IntRange(0, 9).Draw(t, "faulty") == 0 {
				v = rapid.SampledFrom([]float64{0, 100, 5, 90}).Draw(t, "fault")
			}
			if err := r.Set(g, v); err != nil {
				t.Fatal(err)
			}
		}
		s = Observe(s, Sample{Vehicle: "car", Time: at, Readings: r})
	}
	return s
}

func TestThrottleStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkThrottle(t, genPairs(t)) })
}

// TestGapIsNoThrottleEvidence checks the effect of one sample after a silence of more than 2.5 s,
// however long the silence and however wrong the sample. The sample may raise the measure of a
// disagreement at most as much as one second of disagreement would. It must not raise the measure
// of a stuck sensor at all.
func TestGapIsNoThrottleEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genPairs(t)
		before := s.ThrottleMemory
		before.runRules(&s)
		x := Sample{Vehicle: "car", Time: s.Time + UnixMilli(rapid.Int64Range(2501, 3_600_000).Draw(t, "silence")),
			Readings: genReadings(t)}
		s = Observe(s, x)
		after := s.ThrottleMemory
		after.runRules(&s)
		for i := range after.Pairs {
			if got, most := after.Pairs[i].Disagreement,
				before.Pairs[i].Disagreement+coversAlone*(disagreementMost-aloneFree); got > most+0.01 {
				t.Fatalf("pair %d: evidence %g after %g", i, got, before.Pairs[i].Disagreement)
			}
			for k := range after.Pairs[i].Stuck {
				if got := after.Pairs[i].Stuck[k].For; got > before.Pairs[i].Stuck[k].For {
					t.Fatalf("pair %d: stuck for %g after %g", i, got, before.Pairs[i].Stuck[k].For)
				}
			}
		}
	})
}

// TestAnomalyOutlastsSilence checks that one sample after a silence of any length does not end an
// anomaly, because time alone is no evidence. An anomaly that has had almost a minute of readings
// without evidence may end with the sample, and is left out.
func TestAnomalyOutlastsSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genPairs(t)
		if s.ThrottleMemory.Alarm.Since == 0 {
			return
		}
		x := Sample{Vehicle: "car", Time: s.Time + UnixMilli(rapid.Int64Range(1, 1e9).Draw(t, "silence")),
			Readings: genReadings(t)}
		calm := s.ThrottleMemory.Alarm.Calm
		s = Observe(s, x)
		if v := s.Throttle(); calm < calmFor-2*coversMost && v.System != ThrottleAnomaly {
			t.Fatalf("an anomaly calm for %g s ended with one sample", calm)
		}
	})
}
