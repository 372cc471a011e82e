package access_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]access.Rate{
		"":          {},
		"1/s":       {Calls: 1, Window: time.Second},
		"10/s":      {Calls: 10, Window: time.Second},
		"90/min":    {Calls: 90, Window: time.Minute},
		"1000000/h": {Calls: 1_000_000, Window: time.Hour},
	} {
		got, err := access.ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if got.String() != text || got.Limited() != (text != "") {
			t.Errorf("%q comes back as %q, limited %v", text, got, got.Limited())
		}
	}
	for _, text := range []string{"10", "/s", "10/", "0/s", "-1/s", "1.5/s", "10/d", "10/s ", "1000001/s",
		"99999999999999999999/s", "10 / s", "10/s/s"} {
		if r, err := access.ParseRate(text); err == nil {
			t.Errorf("%q is taken for %v", text, r)
		}
	}
}

func drawRate(t *rapid.T, calls int64) access.Rate {
	return access.Rate{
		Calls:  rapid.Int64Range(1, calls).Draw(t, "calls"),
		Window: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "window"),
	}
}

// A refused call uses nothing.
func TestBudgetBurst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t, 200)
		var b access.Budget
		for left := r.Calls - 1; left >= -3; left-- {
			remaining, next, ok := b.Take(r, 1, noon)
			if ok != (left >= 0) || remaining != max(left, 0) || next != r.Window/time.Duration(r.Calls) {
				t.Fatalf("with %d left: %d, %v, %v", left, remaining, next, ok)
			}
		}
	})
}

// In no interval are more than Calls and those refilled in it allowed.
func TestBudgetNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t, rapid.SampledFrom([]int64{20, 1_000_000}).Draw(t, "most calls"))
		each := r.Window / time.Duration(r.Calls)
		gap := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(3*each)), rapid.Int64Range(0, int64(2*r.Window)))
		var b access.Budget
		now := noon
		var passed []time.Time
		for range rapid.IntRange(1, 100).Draw(t, "attempts") {
			now = now.Add(time.Duration(gap.Draw(t, "gap")))
			if _, _, ok := b.Take(r, 1, now); ok {
				passed = append(passed, now)
			}
		}
		for i := range passed {
			for j := i; j < len(passed); j++ {
				if most := r.Calls + int64(passed[j].Sub(passed[i])/each); int64(j-i+1) > most {
					t.Fatalf("%d calls of %v within %v, at most %d may", j-i+1, r, passed[j].Sub(passed[i]), most)
				}
			}
		}
	})
}

func TestBudgetRefillsEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t, 1000)
		each := r.Window / time.Duration(r.Calls)
		var b access.Budget
		now := noon
		for range r.Calls {
			b.Take(r, 1, now)
		}
		for range rapid.IntRange(1, 20).Draw(t, "refills") {
			_, next, ok := b.Take(r, 1, now)
			if ok || next <= 0 || next > each {
				t.Fatalf("an empty budget: %v, next in %v, share %v", ok, next, each)
			}
			if _, _, ok := b.Take(r, 1, now.Add(next-1)); ok {
				t.Fatalf("a call came back %v after %v", next-1, now)
			}
			now = now.Add(next)
			if remaining, _, ok := b.Take(r, 1, now); !ok || remaining != 0 {
				t.Fatalf("no call came back when promised: %v, %d left", ok, remaining)
			}
		}
	})
}

func TestBudgetConcurrent(t *testing.T) {
	r := access.Rate{Calls: 500, Window: time.Hour}
	var b access.Budget
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if _, _, ok := b.Take(r, 1, noon); ok {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != r.Calls {
		t.Fatalf("%d calls passed, want %d", passed.Load(), r.Calls)
	}
}

func TestBudget_TakeOfNoneUsesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := access.Rate{Calls: rapid.Int64Range(1, 5).Draw(t, "calls"), Window: time.Minute}
		var b access.Budget
		now := noon
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 30e9).Draw(t, "pause")))
			remaining, next, _ := b.Take(r, 0, now)
			if again, _, _ := b.Take(r, 0, now); again != remaining || next <= 0 {
				t.Fatalf("%d, then %d; next %v", remaining, again, next)
			}
			left, wait, ok := b.Take(r, 1, now)
			if ok != (remaining > 0) || ok && left != remaining-1 || !ok && wait != next {
				t.Fatalf("had %d and %v, took %v and left %d, %v", remaining, next, ok, left, wait)
			}
		}
	})
}

func TestBudgetBatch(t *testing.T) {
	var b access.Budget
	r := access.Rate{Calls: 10, Window: 10 * time.Second}
	for _, tt := range []struct {
		after time.Duration
		calls int
		left  int64
		next  time.Duration
		ok    bool
	}{
		{0, 0, 10, time.Second, true}, // only reports
		{0, 9, 1, time.Second, true},
		{0, 100, 0, 100 * time.Second, true}, // 99 in advance
		{99 * time.Second, 1, 0, time.Second, false},
		{99 * time.Second, 0, 0, time.Second, false},
		{100 * time.Second, 0, 1, time.Second, true},
		{100 * time.Second, 1, 0, time.Second, true},
		{200 * time.Second, access.MaxBatch + 1, 0, 9991 * time.Second, true},
	} {
		left, next, ok := b.Take(r, tt.calls, noon.Add(tt.after))
		if left != tt.left || next != tt.next || ok != tt.ok {
			t.Errorf("%d after %v: %d left, more after %v, %t; want %d, %v, %t", tt.calls, tt.after, left, next, ok,
				tt.left, tt.next, tt.ok)
		}
	}
}
