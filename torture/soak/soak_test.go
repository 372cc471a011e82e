package soak

import (
	"testing"

	"example.org/carstate/torture/row"
)

// TestReport_Trend checks that a steady growth is reported as a leak, and that a sawtooth is not.
func TestReport_Trend(t *testing.T) {
	for name, c := range map[string]struct {
		goroutines func(minute int) float64
		passes     bool
	}{
		"sawtooth": {func(m int) float64 { return 80 + float64(m%17) }, true},
		"leak":     {func(m int) float64 { return 80 + float64(m) }, false},
	} {
		s := &series{of: make(map[string][]float64)}
		for m := range 120 {
			s.at = append(s.at, float64(m)/60)
			s.of["resident memory"] = append(s.of["resident memory"], 100)
			s.of["descriptors"] = append(s.of["descriptors"], 40)
			s.of["store"] = append(s.of["store"], float64(10+m%20))
			s.of["goroutines"] = append(s.of["goroutines"], c.goroutines(m))
		}
		a := &row.Attempt{Logf: t.Logf}
		s.report(a)
		if o := a.Outcome(); o.Passed() != c.passes {
			t.Errorf("%s: got findings %q, want none: %t", name, o.Findings, c.passes)
		}
	}
	a := &row.Attempt{Logf: t.Logf}
	(&series{}).report(a)
	if o := a.Outcome(); o.Passed() {
		t.Error("an attempt without measurements passed")
	}
}
