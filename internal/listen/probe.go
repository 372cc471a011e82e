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

// Probe measures the queueing delay of this process: how long input waits until the process reads
// it. For this, Probe sends a byte through a pipe up to 50 times per second. Like a request, the
// byte waits in the kernel's list of ready descriptors, and its reader waits among the runnable
// goroutines. The number of requests in progress would not show the delay: a query takes
// microseconds, so two queries are rarely in progress at the same time, however many wait.
//
// The zero value is ready to run. [Limit] and [Probe.Mean] read the measurements.
type Probe struct {
	// ran is approximately how long this process has run, in nanoseconds. A paused process cannot
	// read from its connections, so a pause of any length adds at most longestStep.
	ran atomic.Int64

	// mu guards the fields below.
	mu        sync.Mutex
	sent      time.Time // when the byte in flight was due; zero if none is in flight
	wrote     time.Time // when that byte was written
	mean      time.Duration
	recent    [memory/probeInterval + 1]passage // a ring
	last      int                               // the index of the newest passage
	followers []func(now time.Time, d delays)
}

// passage is the arrival time and the queueing delay of a byte that the probe has sent.
type passage struct {
	at   time.Time
	took time.Duration
}

// delays are recent queueing delays. mean is the expected delay of a request that arrives at a
// random time. It includes pauses of the process, such as those by a CPU quota. min is the smallest
// delay, from writing to reading, of the bytes that arrived within the last 250 ms (the constant
// memory). Bytes are written only while the process runs, so a pause alone does not make min long.
// min is long only if input waits at every moment.
type delays struct{ mean, min time.Duration }

// maxMean is the mean delay above which a listener for small requests is overloaded, if the minimum
// delay is long, too. A process that uses up its CPU quota is paused until the quota is renewed,
// usually ten times per second. Its mean delay stays below maxMean, so these pauses alone do not
// make it overloaded. The mean is taken over about 250 ms (the constant memory), because a single
// byte may arrive fast while others wait.
const maxMean = 125 * time.Millisecond

const (
	// longestByte limits the effect of a single byte on the mean: a longer delay is counted as
	// longestByte. So the mean returns to normal within half a second after a pause of the whole
	// process.
	longestByte   = 4 * maxMean
	memory        = 250 * time.Millisecond
	probeInterval = 20 * time.Millisecond
	longestStep   = time.Second // see Probe.ran
)

// follow registers f, which is called with each new measurement. The calls do not overlap.
func (p *Probe) follow(f func(now time.Time, d delays)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers = append(p.followers, f)
}

// Run measures the queueing delay until ctx ends, and then returns nil. If it cannot measure, it
// returns an error.
func (p *Probe) Run(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot open a pipe to measure the queueing delay: %w", err)
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
			return fmt.Errorf("cannot measure the queueing delay: %w", err)
		case due := <-tick.C: // due is before now, because this goroutine also waits until it runs
			if !p.send(due, time.Now()) {
				continue
			}
		}
		if _, err := w.Write([]byte{0}); err != nil {
			return fmt.Errorf("cannot measure the queueing delay: %w", err)
		}
	}
}

// Mean returns the expected queueing delay of a request that arrives at the present time.
func (p *Probe) Mean() time.Duration {
	_, d := p.now()
	return d.mean
}

// send reports whether no byte is in flight, so that Run may write one. If so, it records one as in
// flight. due is the time at which it was due to be written.
func (p *Probe) send(due, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sent.IsZero() {
		return false
	}
	p.sent, p.wrote = due, now
	return true
}

// arrived records that the byte in flight was read, and calls the functions of follow.
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

// meanAt returns the mean delay at the time now. It includes the byte in flight, if there is one,
// with the delay until now. The result is mean + w × (delay − mean), where mean is the mean before
// this byte, and w = 1 − e^(−(delay + probeInterval)/memory) is the weight of its delay. So a
// longer delay has more weight, because a request that arrives at a random time meets a long delay
// more often than a short one. A delay above longestByte counts as longestByte. If no byte is in
// flight, the result is the mean so far. The caller holds mu.
func (p *Probe) meanAt(now time.Time) time.Duration {
	if p.sent.IsZero() {
		return p.mean
	}
	took := min(max(0, now.Sub(p.sent)), longestByte)
	weight := 1 - math.Exp(-float64(took+probeInterval)/float64(memory))
	return p.mean + time.Duration(weight*float64(took-p.mean))
}

// delaysAt returns the delays at the time now. The caller holds mu.
func (p *Probe) delaysAt(now time.Time) delays {
	// The delay of the byte in flight is still increasing, so it is used only if it makes the mean
	// longer.
	d := delays{mean: max(p.mean, p.meanAt(now))}
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
	at := time.Now() // under the lock: a byte could be written while the lock is awaited
	return at, p.delaysAt(at)
}
