package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// stallOf watches what does not come from the program under test: how long this
// machine let a goroutine wait that was to be woken, and its disk one that wrote a
// byte. What it returns ends that and tells the longer of the two sums.
func stallOf(dir string) (end func() time.Duration) {
	const nap, usual = 10 * time.Millisecond, 10 * time.Millisecond
	var late, slow atomic.Int64
	done := make(chan struct{})
	ended := make(chan struct{}, 2)
	over := func(sum *atomic.Int64, began time.Time, expected time.Duration) {
		if d := time.Since(began) - expected; d > 0 {
			sum.Add(int64(d))
		}
	}
	go func() {
		defer func() { ended <- struct{}{} }()
		for {
			began := time.Now()
			select {
			case <-done:
				return
			case <-time.After(nap):
				over(&late, began, 2*nap)
			}
		}
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		f, err := os.Create(filepath.Join(dir, "stall"))
		if err != nil {
			return
		}
		defer os.Remove(f.Name())
		defer f.Close()
		for {
			select {
			case <-done:
				return
			case <-time.After(nap):
			}
			began := time.Now()
			if _, err := f.Write([]byte{0}); err != nil || f.Sync() != nil {
				return
			}
			over(&slow, began, usual)
		}
	}()
	return func() time.Duration {
		close(done)
		<-ended
		<-ended
		return time.Duration(max(late.Load(), slow.Load()))
	}
}

// noStall is how much of it is usual on a machine that is only busy.
const noStall = 500 * time.Millisecond

// end asks the process to end, and reports how long that took but for what the
// machine stood still. Where it did, an engine that was not closed in time is no
// error: the process has ended as in a crash, for which the engine is made.
func (p *process) end() (time.Duration, error) {
	stalled := stallOf(filepath.Dir(p.Dir))
	began := time.Now()
	err := p.Stop()
	took, stood := time.Since(began), stalled()
	if stood < noStall {
		return took, err
	}
	if err != nil && strings.Contains(p.log.String(), "the engine did not close in time") {
		err = nil
	}
	return took - stood, err
}
