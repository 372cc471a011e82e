package plot_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/plot"
)

func TestNewScale_Linear(t *testing.T) {
	for _, c := range []struct {
		high  float64
		ticks []float64
	}{
		{0.5, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5}},
		{20, []float64{0, 5, 10, 15, 20}},
		{50, []float64{0, 10, 20, 30, 40, 50}},
		{50.5, []float64{0, 20, 40, 60}},
		{101, []float64{0, 30, 60, 90, 120}},
		{151, []float64{0, 50, 100, 150, 200}},
		{999_999, []float64{0, 200_000, 400_000, 600_000, 800_000, 1_000_000}},
	} {
		s := plot.NewScale(c.high, 100, 0)
		if !slices.EqualFunc(s.Ticks, c.ticks, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("ticks to %v: got %v, want %v", c.high, s.Ticks, c.ticks)
		}
		if s.At(0) != 100 || s.At(s.Top()) != 0 {
			t.Errorf("to %v: got the ends at %v and %v, want 100 and 0", c.high, s.At(0), s.At(s.Top()))
		}
	}
}

func TestCurve_GapsAndColumns(t *testing.T) {
	points := []plot.Point{{X: 0, Y: 5}, {X: 0.2, Y: 9}, {X: 0.4, Y: 1}, {X: 0.6, Y: 4}, {X: 1, Y: 2},
		{X: 1.5, Y: 2, Gap: true}, {X: 2, Y: 7}}
	if got, want := plot.Curve(points, 1), "M0.2 9.0L0.4 1.0L1.0 2.0M1.5 2.0L2.0 7.0"; got != want {
		t.Errorf("in columns: got %s, want %s", got, want)
	}
	if got := plot.Curve(points, 0); strings.Count(got, "L")+strings.Count(got, "M") != len(points) {
		t.Errorf("without columns: got %s, want all points", got)
	}
	if got := plot.Curve(nil, 1); got != "" {
		t.Errorf("of no point: got %s, want nothing", got)
	}
}

func TestBetween_EndsAtGaps(t *testing.T) {
	over := []plot.Point{{X: 0, Y: 5}, {X: 0.2, Y: 1}, {X: 0.4, Y: 4}, {X: 3, Y: 6, Gap: true}, {X: 4, Y: 7}}
	under := []plot.Point{{X: 0, Y: 9}, {X: 0.2, Y: 9}, {X: 0.4, Y: 9}, {X: 3, Y: 8, Gap: true}, {X: 4, Y: 8}}
	if got, want := plot.Between(over, under, 0), "M0.0 5.0L0.2 1.0L0.4 4.0L0.4 9.0L0.2 9.0L0.0 9.0Z"+
		"M3.0 6.0L4.0 7.0L4.0 8.0L3.0 8.0Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := plot.Between(nil, nil, 1); got != "" {
		t.Errorf("of no point: got %s, want nothing", got)
	}
}

func TestExtend_MergesEqualValues(t *testing.T) {
	var spans []plot.Span[int, string]
	for _, p := range []struct {
		at    int
		value string
		gap   bool
	}{{1, "a", false}, {2, "a", false}, {4, "b", false}, {9, "b", true}, {10, "c", false}} {
		spans = plot.Extend(spans, p.at, p.value, p.gap)
	}
	want := []plot.Span[int, string]{{1, 4, "a"}, {4, 4, "b"}, {9, 10, "b"}, {10, 10, "c"}}
	if !slices.Equal(spans, want) {
		t.Errorf("got %v, want %v", spans, want)
	}
}

func TestTimeTicksAreRound(t *testing.T) {
	from := time.Date(2026, 1, 5, 8, 37, 12, 0, time.UTC)
	for _, c := range []struct {
		span  time.Duration
		first string
		step  time.Duration
		count int
	}{
		{18 * time.Minute, "08:40:00", 5 * time.Minute, 4},
		{5 * time.Minute, "08:38:00", time.Minute, 5},
		{time.Hour, "08:45:00", 15 * time.Minute, 4},
		{24 * time.Hour, "12:00:00", 6 * time.Hour, 4},
		{40 * time.Second, "08:37:20", 10 * time.Second, 4},
	} {
		ticks := plot.TimeTicks(from, from.Add(c.span), 6)
		if len(ticks) != c.count || ticks[0].Format("15:04:05") != c.first || ticks[1].Sub(ticks[0]) != c.step {
			t.Errorf("ticks of %s: got %v, want %d from %s, every %s", c.span, ticks, c.count, c.first, c.step)
		}
	}
}
