package listen

import (
	"testing"
	"time"
)

// Of 1,000 connections, 400 can be served: the limit falls to 400, and stays within a quarter of
// that.
func TestLimit_FindsCapacity(t *testing.T) {
	const serves = 400
	a := NewLimit(new(Probe), Queries)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	open := 1000
	wait := func() delays {
		return delays{maxMean * time.Duration(open) / serves, Queries.Target * time.Duration(open) / serves}
	}
	pass := func() {
		at = at.Add(adaptInterval)
		a.adapt(at, wait(), open)
	}
	for wait().min > Queries.Target {
		pass()
		open = int(a.max.Load()) // those beyond it are closed
	}
	least, most := open, open
	for range 100 {
		pass()
		open = int(a.max.Load())
		least, most = min(least, open), max(most, open)
	}
	if least < serves*3/4 || most > serves*5/4 {
		t.Errorf("the limit is %d to %d, want within a quarter of %d", least, most, serves)
	}

	// About two seconds.
	open = 10
	passes := 0
	for ; a.Active(); passes++ {
		pass()
	}
	if passes > 20 {
		t.Errorf("the limit was removed after %d adaptations, want 20 at most", passes)
	}
}

func TestLimit_MinimumAndInterval(t *testing.T) {
	a := NewLimit(new(Probe), Queries)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	second := delays{time.Second, time.Second}
	a.adapt(at, second, 10)
	if got := a.max.Load(); got != int64(Queries.Least) {
		t.Errorf("got limit %d, want %d", got, Queries.Least)
	}
	a.adapt(at.Add(adaptInterval/2), second, 1000)
	if got := a.max.Load(); got != int64(Queries.Least) {
		t.Errorf("within adaptInterval: got limit %d, want %d", got, Queries.Least)
	}
	a.adapt(at.Add(adaptInterval), second, 1000)
	if got := a.max.Load(); got != 750 {
		t.Errorf("with 1,000 connections: got limit %d, want 750", got)
	}
}

// Between two pauses no input waits.
func TestLimit_IgnoresPauses(t *testing.T) {
	a := NewLimit(new(Probe), Queries)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if a.adapt(at, delays{mean: time.Second, min: Queries.Target}, 1000); a.Active() {
		t.Error("the limit after pauses: got it active, want it not")
	}
	a.adapt(at, delays{time.Second, time.Second}, 1000)
	for range 20 {
		at = at.Add(adaptInterval)
		a.adapt(at, delays{mean: time.Second}, 1000)
	}
	if a.Active() {
		t.Errorf("got limit %d, want none", a.max.Load())
	}
}

func TestProbe_MeanAndMinimum(t *testing.T) {
	p := new(Probe)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 50 {
		if !p.send(at, at) {
			t.Fatal("a byte that has arrived: got it in flight, want it not")
		}
		p.arrived(at.Add(time.Millisecond))
		at = at.Add(probeInterval)
	}
	waitAt := func(at time.Time) time.Duration { return p.delaysAt(at).mean }
	if got := p.delaysAt(at); got.mean > 2*time.Millisecond || got.min != time.Millisecond {
		t.Errorf("without load: got %+v, want a minimum of 1 ms and a mean of 2 ms at most", got)
	}
	p.send(at, at)
	if p.send(at.Add(probeInterval), at.Add(probeInterval)) {
		t.Error("a second byte while one is in flight: got it sent, want it not")
	}
	if got := waitAt(at.Add(100 * time.Millisecond)); got > maxMean {
		t.Errorf("after 100 ms, as by a quota: got mean %s, want %s at most", got, maxMean)
	}
	if got := waitAt(at.Add(300 * time.Millisecond)); got <= maxMean {
		t.Errorf("after 300 ms: got mean %s, want more than %s", got, maxMean)
	}
	if got := p.delaysAt(at.Add(200 * time.Millisecond)).min; got != time.Millisecond {
		t.Errorf("the minimum of the last %s: got %s, want 1 ms", memory, got)
	}
	if got := p.delaysAt(at.Add(300 * time.Millisecond)).min; got != 300*time.Millisecond {
		t.Errorf("the minimum of only the byte in flight: got %s, want 300 ms", got)
	}
	at = at.Add(300 * time.Millisecond)
	p.arrived(at)
	// A byte that was due during a pause, and arrives at once after it, makes only the mean longer.
	paused := p.delaysAt(at).mean
	at = at.Add(memory + probeInterval)
	p.send(at.Add(-memory), at)
	p.arrived(at.Add(time.Millisecond))
	if got := p.delaysAt(at.Add(time.Millisecond)); got.min != time.Millisecond || got.mean <= paused {
		t.Errorf("after a pause: got %+v, want a minimum of 1 ms and a mean above %s", got, paused)
	}
	calm := 0
	for ; waitAt(at) > maxMean; calm++ {
		p.send(at, at)
		at = at.Add(probeInterval)
		p.arrived(at)
	}
	if calm < 1 || calm > 25 {
		t.Errorf("the mean was normal after %d bytes, want 1 to 25", calm)
	}
}

// A caller may have read the clock before it waited.
func TestProbe_EarlierTime(t *testing.T) {
	at := time.Now()
	for _, late := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, time.Minute} {
		p := &Probe{mean: time.Millisecond}
		p.send(at.Add(late), at.Add(late))
		if got := p.delaysAt(at); got.mean > time.Millisecond || got.min > time.Millisecond {
			t.Errorf("%s late: got %+v, want 1 ms at most", late, got)
		}
	}
}

// A pause, or a clock that is set back, does not look like waiting.
func TestProbe_TimeWithoutPauses(t *testing.T) {
	p := new(Probe)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct{ passes, want time.Duration }{
		{0, longestStep}, {20 * time.Millisecond, 20 * time.Millisecond}, {time.Hour, longestStep}, {-time.Hour, 0},
	} {
		at = at.Add(step.passes)
		p.send(at, at)
		before := p.ran.Load()
		if p.arrived(at); time.Duration(p.ran.Load()-before) != step.want {
			t.Errorf("after %s: got %s, want %s", step.passes, time.Duration(p.ran.Load()-before), step.want)
		}
	}
}

// The process has a quarter of a core on two cores: a pause of 88 ms in each 100 ms in which the
// quota is used up.
func TestQuotaIsNoOverload(t *testing.T) {
	p := new(Probe)
	a := NewLimit(p, Telemetry)
	p.follow(func(now time.Time, d delays) { a.adapt(now, d, 10*Telemetry.Least) })
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var due time.Time // of a tick that was not handled yet
	var most time.Duration
	for ms := range 3000 {
		now := at.Add(time.Duration(ms) * time.Millisecond)
		if ms%20 == 7 && due.IsZero() {
			due = now
		}
		if still := ms >= 1000 && ms%100 >= 12; !still && !due.IsZero() && p.send(due, now) {
			due = time.Time{}
			p.arrived(now)
		}
		most = max(most, p.delaysAt(now).mean)
	}
	if most <= Telemetry.MaxMean || a.Active() {
		t.Errorf("the largest mean is %s; limited: %v; want more than Telemetry.MaxMean and no limit", most, a.Active())
	}
}
