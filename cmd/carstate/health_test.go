package main

import (
	"errors"
	"testing"
	"time"
)

// What counts is how old the copies are when a question comes, not when somebody
// last looked at them.
func TestCanAnswer(t *testing.T) {
	const maxFeedAge = 5 * time.Second
	start := time.Now()
	var fed time.Time // zero: not yet
	h := newHealth(func() (time.Time, bool) { return fed, !fed.IsZero() }, func() error { return nil }, maxFeedAge)
	want := func(after time.Duration, want error) {
		t.Helper()
		if err := h.canAnswer(start.Add(after)); !errors.Is(err, want) {
			t.Errorf("asked after %s: %v; want %v", after, err, want)
		}
	}
	want(0, errStarting)
	h.recordsCaughtUp()
	h.recordsCaughtUp()
	h.caughtUp()
	want(time.Second, errStarting) // no heartbeat has come back
	fed = start.Add(time.Second)
	want(2*time.Second, nil)
	want(6*time.Second, nil)
	want(6*time.Second+1, errTooOld)
	want(time.Hour, errTooOld)
	want(3*time.Second, nil) // this one was asked before those, and is answered late
	fed = start.Add(time.Hour)
	want(time.Hour+maxFeedAge, nil)
	want(time.Hour+maxFeedAge+1, errTooOld)
	if n := testing.AllocsPerRun(100, func() { _ = h.canAnswer(start.Add(2 * time.Hour)) }); n != 0 {
		t.Errorf("%g allocations a question", n)
	}
}

// BenchmarkCanAnswer is what each query pays for it.
func BenchmarkCanAnswer(b *testing.B) {
	now := time.Now()
	h := newHealth(func() (time.Time, bool) { return now, true }, func() error { return nil }, time.Hour)
	h.feeds.Store(0)
	b.ReportAllocs()
	for b.Loop() {
		if err := h.canAnswer(now); err != nil {
			b.Fatal(err)
		}
	}
}
