package scale

import "testing"

func TestSlope_IgnoresOutliers(t *testing.T) {
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
