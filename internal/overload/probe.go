package overload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

// Probe measures the queueing delay of this process: how long input waits until the
// process reads it. It sends a byte through a pipe 50 times a second. The reading end
// waits for its turn among all connections as a request does: in the kernel's list of
// ready descriptors, and among the runnable goroutines. The number of requests in
// progress says nothing of it: a query takes microseconds, so that there are hardly
// ever two in progress, however many wait.
//
// The zero value is ready to run. [Listener] and [Probe.Mean] read it.
type Probe struct {
	mu        sync.Mutex // guards what follows
	sent      time.Time  // when the byte in flight was due; zero: none is in flight
	wrote     time.Time  // when it was written
	mean      time.Duration
	recent    [memory/probeInterval + 1]passage // a ring
	last      int                               // index of the newest
	followers []func(now time.Time, d delays)
}

// passage is a byte that has arrived.
type passage struct {
	at   time.Time
	took time.Duration
}

// delays are recent queueing delays. mean is the expected delay of a request that
// arrives at a random time; a pause of the process, such as one by a quota of CPU time,
// makes it long. min is the smallest delay of a byte that was written while the process
// ran; it is long only where input waits at every moment.
type delays struct{ mean, min time.Duration }

// Bounds say which queueing delays a listener accepts.
type Bounds struct {
	MaxMean time.Duration // with a longer mean, more arrives than is served
	Target  time.Duration // the minimum that an overloaded listener is led to
}

// The mean of a process whose quota of CPU time, handed out ten times a second as
// usual, is used up stays below 125 ms. The mean is taken over about memory: a single
// byte may pass fast while others wait.
const maxMean = 125 * time.Millisecond

var (
	// Queries are the bounds of a listener of small requests.
	Queries = Bounds{MaxMean: maxMean, Target: 5 * time.Millisecond}
	// Telemetry are the bounds of a listener whose requests wait for more than one
	// turn: for the body, for the group commit, for the answer.
	Telemetry = Bounds{MaxMean: maxMean / 3, Target: 15 * time.Millisecond}
)

const (
	// longestByte is what a byte counts at most: after a pause of the whole process, the
	// mean is normal again within half a second.
	longestByte   = 4 * maxMean
	memory        = 250 * time.Millisecond
	probeInterval = 20 * time.Millisecond
)

// follow has f called with each new measurement, one after the other.
func (p *Probe) follow(f func(now time.Time, d delays)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers = append(p.followers, f)
}

// Run measures until ctx ends.
func (p *Probe) Run(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("no pipe to measure the queueing delay with: %w", err)
	}
	var reading sync.WaitGroup
	failed := make(chan error, 1)
	reading.Go(func() {
		var b [1]byte
		for {
			if n, err := r.Read(b[:]); n == 0 || err != nil {
				failed <- err
				return
			}
			p.arrived(time.Now())
		}
	})
	defer reading.Wait()
	defer func() { _ = errors.Join(w.Close(), r.Close()) }()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("the queueing delay cannot be measured: %w", err)
		case due := <-tick.C: // not the present time: this goroutine waits for its turn too
			if !p.send(due, time.Now()) {
				continue
			}
		}
		if _, err := w.Write([]byte{0}); err != nil {
			return fmt.Errorf("the queueing delay cannot be measured: %w", err)
		}
	}
}

// Mean is the expected queueing delay of a request that arrives now.
func (p *Probe) Mean() time.Duration {
	_, d := p.now()
	return d.mean
}

// send reports whether a byte that was due at a time is to be written now.
func (p *Probe) send(due, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sent.IsZero() {
		return false
	}
	p.sent, p.wrote = due, now
	return true
}

// arrived notes that the byte was read.
func (p *Probe) arrived(now time.Time) {
	p.mu.Lock()
	if !p.sent.IsZero() {
		p.last = (p.last + 1) % len(p.recent)
		p.recent[p.last] = passage{now, now.Sub(p.wrote)}
	}
	p.mean, p.sent = p.meanAt(now), time.Time{}
	d := p.delaysAt(now)
	followers := p.followers // only grows
	p.mu.Unlock()
	for _, f := range followers {
		f(now, d)
	}
}

// meanAt is the mean delay. Each byte is weighted by its own delay, because a request
// that arrives at a random time meets a long delay more often than a short one. A byte
// in flight counts with its delay until now. mu is held.
func (p *Probe) meanAt(now time.Time) time.Duration {
	if p.sent.IsZero() {
		return p.mean
	}
	took := min(max(0, now.Sub(p.sent)), longestByte)
	weight := 1 - math.Exp(-float64(took+probeInterval)/float64(memory))
	return p.mean + time.Duration(weight*float64(took-p.mean))
}

// delaysAt are the delays at a time. mu is held.
func (p *Probe) delaysAt(now time.Time) delays {
	d := delays{mean: max(p.mean, p.meanAt(now))} // a byte in flight may still take long
	d.min = p.recent[p.last].took
	if !p.sent.IsZero() {
		d.min = max(d.min, now.Sub(p.wrote))
	}
	for _, x := range p.recent {
		if now.Sub(x.at) <= memory {
			d.min = min(d.min, x.took)
		}
	}
	return d
}

// now are the present delays, and the present time.
func (p *Probe) now() (time.Time, delays) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now() // not before the lock: meanwhile a byte may have been written
	return at, p.delaysAt(at)
}
