package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

// congestion knows how long what arrives waits until this process gets to it. It
// sends a byte through a pipe now and then, whose end waits for its turn among all
// connections, as a request does: in the kernel's list of what is ready, and among
// the goroutines that are. Nothing else tells: a query in progress takes
// microseconds, so however many wait, hardly ever are two in progress.
type congestion struct {
	mu        sync.Mutex // guards what follows
	sent      time.Time  // when the byte under way was to be sent; zero: none is
	wrote     time.Time  // and when it was
	mean      time.Duration
	lately    [memory/probeTime + 1]passage // a ring
	last      int                           // the newest of them
	followers []func(now time.Time, w waits)
}

// passage is a byte that has arrived.
type passage struct {
	at   time.Time
	took time.Duration
}

// waits are how long what arrives waits. The mean is what somebody has to expect who
// comes at a random moment. A pause of the process makes it long, such as one by a
// quota of CPU time. The least is of a byte that came while the process ran, which
// takes long only where others wait at every moment.
type waits struct{ mean, least time.Duration }

// Where what arrives waits longer than maxWait, more arrives than is done. It is longer
// than a process waits whose quota of CPU time, handed out ten times a second as
// usual, is used up. What is looked at is the mean over about memory: a byte may
// slip through where others wait.
const (
	maxWait = 125 * time.Millisecond
	// A request of telemetry waits for more turns than one: for its body, for the
	// group commit, for its answer.
	maxTelemetryWait = maxWait / 3
	// The least waits that an overloaded node is led to.
	leastWait          = 5 * time.Millisecond
	leastTelemetryWait = 15 * time.Millisecond
	// longestByte is what a byte counts at most: after a pause of the whole process,
	// the mean is itself again within half a second.
	longestByte = 4 * maxWait
	memory      = 250 * time.Millisecond
	probeTime   = 20 * time.Millisecond // from one byte to the next
)

// follow has f called with each new measurement, one after the other.
func (g *congestion) follow(f func(now time.Time, w waits)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.followers = append(g.followers, f)
}

// run measures until ctx ends.
func (g *congestion) run(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("no pipe to measure the congestion with: %w", err)
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
			g.arrived(time.Now())
		}
	})
	defer reading.Wait()
	defer func() { _ = errors.Join(w.Close(), r.Close()) }()
	tick := time.NewTicker(probeTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("the congestion cannot be measured: %w", err)
		case due := <-tick.C: // and not now: this goroutine waits for its turn too
			if !g.send(due, time.Now()) {
				continue
			}
		}
		if _, err := w.Write([]byte{0}); err != nil {
			return fmt.Errorf("the congestion cannot be measured: %w", err)
		}
	}
}

// send reports whether a byte is to be sent now that was due then.
func (g *congestion) send(due, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.sent.IsZero() {
		return false
	}
	g.sent, g.wrote = due, now
	return true
}

// arrived is told when the byte was read.
func (g *congestion) arrived(now time.Time) {
	g.mu.Lock()
	if !g.sent.IsZero() {
		g.last = (g.last + 1) % len(g.lately)
		g.lately[g.last] = passage{now, now.Sub(g.wrote)}
	}
	g.mean, g.sent = g.meanAt(now), time.Time{}
	w := g.waitsAt(now)
	followers := g.followers // which only grow
	g.mu.Unlock()
	for _, f := range followers {
		f(now, w)
	}
}

// meanAt is how long a byte takes. Each counts for as long as it took, as it does
// for whoever comes at a random moment; one that is under way took as long as it
// has until now. mu is held.
func (g *congestion) meanAt(now time.Time) time.Duration {
	if g.sent.IsZero() {
		return g.mean
	}
	took := min(max(0, now.Sub(g.sent)), longestByte)
	weight := 1 - math.Exp(-float64(took+probeTime)/float64(memory))
	return g.mean + time.Duration(weight*float64(took-g.mean))
}

// waitsAt is how long what arrives waits. mu is held.
func (g *congestion) waitsAt(now time.Time) waits {
	w := waits{mean: max(g.mean, g.meanAt(now))} // one under way may still take long
	w.least = g.lately[g.last].took
	if !g.sent.IsZero() {
		w.least = max(w.least, now.Sub(g.wrote))
	}
	for _, p := range g.lately {
		if now.Sub(p.at) <= memory {
			w.least = min(w.least, p.took)
		}
	}
	return w
}

// now is how long what arrives waits.
func (g *congestion) now() (time.Time, waits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Now() // not before the lock: meanwhile a byte may have been sent
	return at, g.waitsAt(at)
}
