package overload

import (
	"testing"
	"time"
)

func TestRecovered_AfterTheLastSlowSecond(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const normal = 100 * time.Millisecond
	for name, c := range map[string]struct {
		spoil func(i int, f *outcome)
		want  time.Duration
	}{
		"at once": {func(int, *outcome) {}, 0},
		"one failed": {func(i int, f *outcome) {
			if i == 150 {
				f.good, f.took = false, time.Second
			}
		}, 2500 * time.Millisecond},
		"one was slow": {func(i int, f *outcome) {
			if i == 150 {
				f.took = time.Second
			}
		}, 0},
		"slow for half a second": {func(i int, f *outcome) {
			if i < 50 {
				f.took = 200 * time.Millisecond
			}
		}, 680 * time.Millisecond},
	} {
		var all []outcome
		for i := range 400 {
			f := outcome{due: began.Add(time.Duration(i) * 10 * time.Millisecond), good: true, took: time.Millisecond}
			c.spoil(i, &f)
			all = append(all, f)
		}
		if got := recovered(all, began, normal); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
