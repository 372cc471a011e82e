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
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
		if got.String() != text || got.Limited() != (text != "") {
			t.Errorf("%q: got it back as %q, limited %v; want %q, %v", text, got, got.Limited(), text, text != "")
		}
	}
	for _, text := range []string{"10", "/s", "10/", "0/s", "-1/s", "1.5/s", "10/d", "10/s ", "1000001/s",
		"99999999999999999999/s", "10 / s", "10/s/s"} {
		if r, err := access.ParseRate(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, r)
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
				t.Fatalf("%v with %d left: got %d, %v, %v; want %d, a share of the window, %v",
					r, left, remaining, next, ok, max(left, 0), left >= 0)
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
					t.Fatalf("%v within %v: got %d calls, want at most %d", r, passed[j].Sub(passed[i]), j-i+1, most)
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
				t.Fatalf("an empty budget: got a call %v, the next in %v; want false, at most %v", ok, next, each)
			}
			if _, _, ok := b.Take(r, 1, now.Add(next-1)); ok {
				t.Fatalf("%v after %v: got a call, want none yet", next-1, now)
			}
			now = now.Add(next)
			if remaining, _, ok := b.Take(r, 1, now); !ok || remaining != 0 {
				t.Fatalf("the promised call: got %v with %d left, want true with 0", ok, remaining)
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
		t.Fatalf("%v: got %d calls, want %d", r, passed.Load(), r.Calls)
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
				t.Fatalf("the same look twice: got %d, then %d, next in %v; want no change", remaining, again, next)
			}
			left, wait, ok := b.Take(r, 1, now)
			if ok != (remaining > 0) || ok && left != remaining-1 || !ok && wait != next {
				t.Fatalf("%d left, the next in %v: got %v, %d left, wait %v; want %v, then one less or that wait",
					remaining, next, ok, left, wait, remaining > 0)
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
			t.Errorf("%d after %v: got %d left, more after %v, %t; want %d, %v, %t", tt.calls, tt.after, left, next, ok,
				tt.left, tt.next, tt.ok)
		}
	}
}
