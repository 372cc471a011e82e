package scale

import (
	"slices"
	"testing"
	"time"

	"carstate/bench/report"
)

func TestSlope(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 0}, {[]float64{1, 3, 5, 7}, 2}, {[]float64{4, 3, 2}, -1},
		{[]float64{10, 10, 900, 10, 10, 10}, 0}, // one bad second is no trend
	} {
		if got := slope(c.values); got != c.want {
			t.Errorf("of %v: %v, not %v", c.values, got, c.want)
		}
	}
}

func TestLags(t *testing.T) {
	l := newLags()
	for i := range 100 {
		at := l.from.Add(time.Duration(i) * time.Second)
		l.ms, l.after = append(l.ms, float64(i)), append(l.after, at.Sub(l.from))
	}
	if got := report.Quantile(l.ms, 0.99); got != 98 {
		t.Errorf("p99 is %v", got)
	}
	if got := l.between(10*time.Second, 20*time.Second); len(got) != 10 || got[0] != 10 {
		t.Errorf("of the second ten seconds: %v", got)
	}
	if got := l.medians(3500 * time.Millisecond); !slices.Equal(got, []float64{0, 1, 2}) {
		t.Errorf("the medians of three seconds: %v", got)
	}
	if got := report.Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
