package vehicle_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// genPairs draws a state after samples of the throttle's sensors. A tenth are faulty.
func genPairs(t *rapid.T) vehicle.State {
	var s vehicle.State
	at := signal.UnixMilli(1_800_000_000_000)
	step := rapid.SampledFrom([]int64{100, 450, 1000, 2000, 2400, 2600, 10_000, 60_000}).Draw(t, "step")
	position := 20.0
	for range rapid.IntRange(1, 60).Draw(t, "samples") {
		at += signal.UnixMilli(step)
		if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
			position = rapid.Float64Range(16, 60).Draw(t, "position")
		}
		x := vehicle.Sample{Vehicle: "car", Time: at}
		for i, g := range [...]signal.Signal{signal.ThrottlePosition, signal.ThrottlePositionB,
			signal.ThrottleActuator, signal.AcceleratorPositionD, signal.AcceleratorPositionE, signal.EngineLoad} {
			if !rapid.Bool().Draw(t, "read") {
				continue
			}
			v := position + float64(i)
			if rapid.IntRange(0, 9).Draw(t, "faulty") == 0 {
				v = rapid.SampledFrom([]float64{0, 100, 5, 90}).Draw(t, "fault")
			}
			set(t, &x, g, v)
		}
		s = vehicle.Observe(s, x)
	}
	return s
}

func TestThrottleStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { check(t, genPairs(t)) })
}

// One sample after a silence of more than 2.5 s, however long and wrong, raises the evidence of a
// disagreement at most as much as one second of it would (6 of 36 percent × seconds), and that of a
// stuck sensor not at all.
func TestGapIsNoThrottleEvidence(t *testing.T) {
	facts := func(s vehicle.State) map[string]float64 {
		all := make(map[string]float64)
		for _, f := range s.ExplainThrottle().Facts {
			all[f.Name] = f.Value
		}
		return all
	}
	rapid.Check(t, func(t *rapid.T) {
		s := genPairs(t)
		if s.Throttle().System == throttle.Anomaly {
			return // it is explained by its own measure alone
		}
		before := facts(s)
		silence := signal.UnixMilli(rapid.Int64Range(2501, 3_600_000).Draw(t, "silence"))
		s = vehicle.Observe(s, vehicle.Sample{Vehicle: "car", Time: s.Time + silence, Readings: genReadings(t)})
		for name, got := range facts(s) {
			most := before[name]
			if strings.HasSuffix(name, "disagree") {
				most += 100 * 6 / 36.
			} else if !strings.Contains(name, "stood still") {
				continue
			}
			if got > most+0.01 {
				t.Fatalf("%s: got %g after %g, want at most %g", name, got, before[name], most)
			}
		}
	})
}

// TestAnomalyOutlastsSilence checks that one sample after a silence of any length does not end an
// anomaly, because time alone is no evidence. One that was calm for almost a minute is left out.
func TestAnomalyOutlastsSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genPairs(t)
		if s.Throttle().System != throttle.Anomaly {
			return
		}
		facts := s.ExplainThrottle().Facts
		calm := facts[len(facts)-1]
		silence := signal.UnixMilli(rapid.Int64Range(1, 1e9).Draw(t, "silence"))
		s = vehicle.Observe(s, vehicle.Sample{Vehicle: "car", Time: s.Time + silence, Readings: genReadings(t)})
		if v := s.Throttle(); calm.Value < calm.Threshold-4 && v.System != throttle.Anomaly {
			t.Fatalf("an anomaly with %+v: got its end after one sample, want it to last", calm)
		}
	})
}
