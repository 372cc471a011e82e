package vehicle_test

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func TestExplainThrottleTellsReadingsAndLimits(t *testing.T) {
	at := signal.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))
	read := func(s vehicle.State, values map[signal.Signal]float64) vehicle.State {
		t.Helper()
		at = at.Add(500 * time.Millisecond)
		x := vehicle.Sample{Vehicle: "car", Time: at}
		for g, v := range values {
			set(t, &x, g, v)
		}
		return vehicle.Observe(s, x)
	}
	for _, c := range []struct {
		x, y signal.Signal
		text string
	}{
		{signal.ThrottleActuator, signal.ThrottlePosition,
			`^the plate is not where .*: commanded \d+ %, it is at 60 % in place of \d+ %; up to 2 % apart is normal$`},
		{signal.ThrottlePosition, signal.ThrottlePositionB,
			`^two sensors .*: plate sensor A read \d+ % and plate sensor B 60 % in place of \d+ %; up to 3 % apart is normal$`},
	} {
		var s vehicle.State
		for i := range 400 {
			v := float64(i / 20 % 3 * 5)
			s = read(s, map[signal.Signal]float64{c.x: 4 + v, c.y: 10 + v})
		}
		e := s.ExplainThrottle()
		if e.Text != "normal: every measure is within its limit" {
			t.Fatalf(`a healthy car: got %q, want "normal: every measure is within its limit"`, e.Text)
		}
		for range 60 {
			s = read(s, map[signal.Signal]float64{c.x: 4, c.y: 60})
		}
		broken := s.ExplainThrottle()
		if !regexp.MustCompile(c.text).MatchString(broken.Text) {
			t.Errorf("an anomaly is explained by %q, want %s", broken.Text, c.text)
		}
		for _, f := range append(e.Facts, broken.Facts...) {
			if math.IsNaN(f.Threshold) != (f.Limit == "") || strings.Contains(f.Unit, " ") ||
				strings.Contains(f.Name, "throttle/") {
				t.Errorf("the fact: got %+v, want one for people", f)
			}
		}
	}
}
