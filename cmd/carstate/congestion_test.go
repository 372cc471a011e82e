package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A byte that takes long makes the mean grow while it is still under way, and the
// mean goes down again after it.
func TestCongestion(t *testing.T) {
	g := new(congestion)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 50 {
		if !g.send(at, at) {
			t.Fatal("a byte is under way that arrived")
		}
		g.arrived(at.Add(time.Millisecond))
		at = at.Add(probeTime)
	}
	waitAt := func(at time.Time) time.Duration { return g.waitsAt(at).mean }
	if got := g.waitsAt(at); got.mean > 2*time.Millisecond || got.least != time.Millisecond {
		t.Errorf("at rest it is %+v", got)
	}
	g.send(at, at)
	if g.send(at.Add(probeTime), at.Add(probeTime)) {
		t.Error("a second byte is sent")
	}
	if got := waitAt(at.Add(100 * time.Millisecond)); got > maxWait {
		t.Errorf("100 ms, which a quota takes, make it %s", got)
	}
	if got := waitAt(at.Add(300 * time.Millisecond)); got <= maxWait {
		t.Errorf("300 ms make it %s", got)
	}
	if got := g.waitsAt(at.Add(200 * time.Millisecond)).least; got != time.Millisecond {
		t.Errorf("the least of the last %s is %s", memory, got)
	}
	if got := g.waitsAt(at.Add(300 * time.Millisecond)).least; got != 300*time.Millisecond {
		t.Errorf("the least of none but one under way is %s", got)
	}
	at = at.Add(300 * time.Millisecond)
	g.arrived(at)
	// What is due in a pause of the process, and gets through at once after it, makes
	// the mean long and not the least.
	paused := g.waitsAt(at).mean
	at = at.Add(memory + probeTime)
	g.send(at.Add(-memory), at)
	g.arrived(at.Add(time.Millisecond))
	if got := g.waitsAt(at.Add(time.Millisecond)); got.least != time.Millisecond || got.mean <= paused {
		t.Errorf("after a pause it is %+v", got)
	}
	calm := 0
	for ; waitAt(at) > maxWait; calm++ {
		g.send(at, at)
		at = at.Add(probeTime)
		g.arrived(at)
	}
	if calm < 1 || calm > 25 {
		t.Errorf("%d bytes until it is over", calm)
	}
}

// Who asks with a time that he took before the byte was sent, because he was kept
// waiting since, is not told of a wait that nobody has.
func TestCongestionOfAnEarlierMoment(t *testing.T) {
	at := time.Now()
	for _, late := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, time.Minute} {
		g := &congestion{mean: time.Millisecond}
		g.send(at.Add(late), at.Add(late))
		if got := g.waitsAt(at); got.mean > time.Millisecond || got.least > time.Millisecond {
			t.Errorf("asked %s late, it is %+v", late, got)
		}
	}
}

// A process that may use a quarter of a core, and has two to run on, stands still for
// 88 of each 100 ms in which it uses that, and does all that it is asked all the same.
func TestQuotaIsNoOverload(t *testing.T) {
	g := new(congestion)
	a := newAllowance(maxTelemetryWait, leastTelemetryWait)
	g.follow(func(now time.Time, w waits) { a.adapt(now, w, 10*fewCallers) })
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var due time.Time // of a tick that nobody has looked at
	var most time.Duration
	for ms := range 3000 {
		now := at.Add(time.Duration(ms) * time.Millisecond)
		if ms%20 == 7 && due.IsZero() {
			due = now
		}
		if still := ms >= 1000 && ms%100 >= 12; !still && !due.IsZero() && g.send(due, now) {
			due = time.Time{}
			g.arrived(now)
		}
		most = max(most, g.waitsAt(now).mean)
	}
	if most <= maxTelemetryWait || a.limited() {
		t.Errorf("the mean wait comes to %s; limited: %v", most, a.limited())
	}
}

// Bytes go through the pipe.
func TestCongestionRuns(t *testing.T) {
	g := new(congestion)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.run(ctx) }()
	if err := until(time.Minute, func() error {
		if _, w := g.now(); w.mean == 0 || w.least == 0 {
			return errors.New("no byte has arrived")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// overrun is a congestion of a node that is a second behind.
func overrun() *congestion {
	g := &congestion{mean: time.Second}
	g.lately[g.last] = passage{time.Now(), time.Second}
	return g
}
