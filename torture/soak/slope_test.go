package soak

import (
	"math"
	"math/rand/v2"
	"testing"

	"carstate/torture/row"
)

func TestSlope(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var x, y []float64
	for i := range 400 {
		x = append(x, float64(i))
		v := 3*float64(i) + r.NormFloat64()
		if i%5 == 0 {
			v += 10_000 * r.Float64() // what a mean would fall for
		}
		y = append(y, v)
	}
	if got := slope(x, y); math.Abs(got-3) > 0.1 {
		t.Errorf("the slope is %g", got)
	}
	if slope(nil, nil) != 0 || slope([]float64{1}, []float64{2}) != 0 {
		t.Error("one point has no slope")
	}
	if median([]float64{4, 1, 3}) != 3 || median([]float64{4, 1}) != 2.5 {
		t.Error("not the middle")
	}
}

// A leak is seen, a sawtooth is not taken for one.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		goroutines func(minute int) float64
		passes     bool
	}{
		"flat":     {func(int) float64 { return 80 }, true},
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
		s.judge(a)
		if o := a.Outcome(); o.Passed() != c.passes {
			t.Errorf("%s: %+v", name, o.Findings)
		}
	}
	a := &row.Attempt{Logf: t.Logf}
	(&series{}).judge(a)
	if o := a.Outcome(); o.Passed() {
		t.Error("nothing was measured, and that was fine")
	}
}
