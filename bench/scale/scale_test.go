package scale

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// What fails as a test fails, ends and is cleaned up after.
func TestOutside(t *testing.T) {
	o := &outside{logf: t.Logf}
	var order []int
	err := o.run(func() error {
		o.Cleanup(func() { order = append(order, 1) })
		o.Cleanup(func() { order = append(order, 2) })
		o.Fatalf("no %s", "luck")
		return nil
	})
	if err == nil || err.Error() != "no luck" || !o.Failed() {
		t.Errorf("it failed of %v", err)
	}
	if len(order) != 2 || order[0] != 2 {
		t.Errorf("cleaned up in the order %v", order)
	}
	want := errors.New("told")
	if err := (&outside{}).run(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

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
	if got := quantile(l.ms, 0.99); got != 98 {
		t.Errorf("p99 is %v", got)
	}
	if got := l.between(10*time.Second, 20*time.Second); len(got) != 10 || got[0] != 10 {
		t.Errorf("of the second ten seconds: %v", got)
	}
	if got := l.medians(3500 * time.Millisecond); !slices.Equal(got, []float64{0, 1, 2}) {
		t.Errorf("the medians of three seconds: %v", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
