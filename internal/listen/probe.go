package listen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Probe measures the queueing delay of this process: how long input waits until it is read. A byte
// goes through a pipe up to 50 times per second. The number of requests in progress would not show
// the delay, because a query takes microseconds. The zero value is ready to run.
type Probe struct {
	// ran is approximately how long this process has run, in nanoseconds. A pause adds at most
	// longestStep, because a paused process cannot read from its connections.
	ran atomic.Int64

	// guards the fields below
	mu        sync.Mutex
	sent      time.Time // when the byte in flight was due; zero if there is none
	wrote     time.Time
	mean      time.Duration
	recent    [memory/probeInterval + 1]passage // a ring
	last      int                               // index of the newest
	followers []func(now time.Time, d delays)
}

type passage struct {
	at   time.Time
	took time.Duration
}

// mean counts from when a byte was due, so it includes pauses of the process. min counts from when
// one was written, while the process ran, so it is long only if input waits at every moment.
type delays struct{ mean, min time.Duration }

const (
	// maxMean exceeds the mean of a process that a CPU quota pauses ten times per second.
	maxMean = 125 * time.Millisecond
	// A longer delay counts as longestByte, so that the mean is normal half a second after a pause.
	longestByte   = 4 * maxMean
	memory        = 250 * time.Millisecond // a single byte may arrive fast while other input waits
	probeInterval = 20 * time.Millisecond
	longestStep   = time.Second
)

// follow calls f for each new measurement; the calls do not overlap.
func (p *Probe) follow(f func(now time.Time, d delays)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers = append(p.followers, f)
}

func (p *Probe) Run(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot open a pipe to measure the queueing delay: %w", err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		var b [1]byte
		for {
			if _, err := r.Read(b[:]); err != nil {
				return // only because Run has closed the pipe
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
		case due := <-tick.C: // before now, because this goroutine also waits until it runs
			if !p.send(due, time.Now()) {
				continue
			}
		}
		if _, err := w.Write([]byte{0}); err != nil {
			return fmt.Errorf("cannot measure the queueing delay: %w", err)
		}
	}
}

// Mean returns the expected queueing delay of a request that arrives now.
func (p *Probe) Mean() time.Duration {
	_, d := p.now()
	return d.mean
}

func (p *Probe) send(due, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sent.IsZero() {
		return false
	}
	p.sent, p.wrote = due, now
	return true
}

func (p *Probe) arrived(now time.Time) {
	p.mu.Lock()
	p.ran.Add(int64(min(max(0, now.Sub(p.recent[p.last].at)), longestStep)))
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

// meanAt includes the byte in flight. A longer delay has more weight, because a request at a random
// time meets it more often. The caller holds mu.
func (p *Probe) meanAt(now time.Time) time.Duration {
	if p.sent.IsZero() {
		return p.mean
	}
	took := min(max(0, now.Sub(p.sent)), longestByte)
	weight := 1 - math.Exp(-float64(took+probeInterval)/float64(memory))
	return p.mean + time.Duration(weight*float64(took-p.mean))
}

// The caller holds mu.
func (p *Probe) delaysAt(now time.Time) delays {
	d := delays{mean: max(p.mean, p.meanAt(now))} // the delay of the byte in flight still grows
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

func (p *Probe) now() (time.Time, delays) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now() // under the lock: a byte could be written while it is awaited
	return at, p.delaysAt(at)
}
