package periodic_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/carstate/internal/periodic"
)

func TestEvery_UntilContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		ticks func(context.Context, time.Duration) func(func() bool)
		until time.Duration
		most  int
		want  []time.Duration
	}{
		"the context ends": {periodic.Every, 35 * time.Second, 100,
			[]time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}},
		"the listener ends":      {periodic.Every, time.Hour, 2, []time.Duration{10 * time.Second, 20 * time.Second}},
		"it ended before":        {periodic.Every, 0, 100, nil},
		"at once":                {periodic.NowAndEvery, 15 * time.Second, 100, []time.Duration{0, 10 * time.Second}},
		"at once and no more":    {periodic.NowAndEvery, time.Hour, 1, []time.Duration{0}},
		"at once, though ended":  {periodic.NowAndEvery, 0, 100, []time.Duration{0}},
		"at once, then one more": {periodic.NowAndEvery, time.Hour, 2, []time.Duration{0, 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.until)
				defer cancel()
				began := time.Now()
				var got []time.Duration
				for range c.ticks(ctx, 10*time.Second) {
					if got = append(got, time.Since(began)); len(got) == c.most {
						break
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("it ticked after %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestPause_UntilContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		for _, want := range []struct {
			err   error
			after time.Duration
		}{{nil, 10 * time.Second}, {context.DeadlineExceeded, 15 * time.Second}} {
			if err := periodic.Pause(ctx, 10*time.Second); err != want.err || time.Since(began) != want.after {
				t.Errorf("got %v after %v, want %v after %v", err, time.Since(began), want.err, want.after)
			}
		}
	})
}
