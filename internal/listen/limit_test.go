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
		t.Error("pauses activated the limit")
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
