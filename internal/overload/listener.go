// Package overload sheds load: a [Probe] measures the queueing delay of the process,
// and a [Listener] limits its open connections by that delay. Its unit is the
// connection; it never looks at a request and never refuses one itself.
//
// The package counts and evicts connections itself, below [carstate/internal/netguard]: it
// needs the newest connections in order, and its deadlines for idle ones go by a clock that
// stands still while the process does. The limit that it enforces changes with the delay.
//
//	var probe overload.Probe
//	go probe.Run(ctx)
//	l := overload.NewListener(port, &probe, overload.Queries)
//	srv.Serve(l) // asks l.Overloaded for each new connection, l.Excess for each answer
package overload

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Listener sheds load. Under overload each new connection is refused by its server, and
// a refusal costs more CPU time than an answer on an open connection. So Accept then
// slows down, and the listen backlog shrinks: a connection that the kernel refuses costs
// nothing. Make one with [NewListener].
type Listener struct {
	net.Listener
	probe *Probe
	limit *connLimit

	mu      sync.Mutex // guards what follows
	backlog int        // how many connections may wait to be accepted, as last set
	// Connections that were accepted and are not closed, the newest first, and their
	// number.
	newest *trackedConn
	open   atomic.Int64 // read without mu
	// About how long this process has run, in nanoseconds; read without mu. Nothing can
	// be read during a pause of the process, so that a pause counts as longestStep at
	// most; last is when the clock was last set.
	clock atomic.Int64
	last  time.Time

	once   sync.Once
	closed chan struct{}
}

// A refusal costs as much as many answers. So an overloaded listener lets the open
// connections have turnsBetween turns between two newcomers. While the limit applies,
// only shortBacklog connections may wait: a client that is refused learns it soon, and
// most of those that wait longer have hung up, which has a cost too.
const (
	turnsBetween = 512
	longestPause = 100 * time.Millisecond
	shortBacklog = 16
	longBacklog  = 1 << 16 // the kernel cuts it to what it allows
)

// NewListener makes a listener that admits every connection until the delays that the
// probe measures exceed the bounds.
func NewListener(l net.Listener, p *Probe, b Bounds) *Listener {
	s := &Listener{Listener: l, probe: p, limit: newConnLimit(b), backlog: longBacklog, closed: make(chan struct{})}
	p.follow(s.adapt)
	return s
}

func (l *Listener) adapt(now time.Time, d delays) {
	l.advanceClock(now)
	if l.limit.adapt(now, d, l.open.Load()) && l.limit.active() {
		l.markExcess()
	}
	l.updateBacklog()
}

// advanceClock sets the clock. Another caller may have set it since now was read.
func (l *Listener) advanceClock(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if behind := l.last.Sub(now); behind > 0 && behind < longestStep {
		return
	}
	l.clock.Add(int64(min(max(0, now.Sub(l.last)), longestStep)))
	l.last = now
}

// Limited reports whether the number of connections is limited at present.
func (l *Listener) Limited() bool { return l.limit.active() }

// crowded reports whether there is a limit, and so many connections are open that it
// may concern newer ones.
func (l *Listener) crowded() bool { return l.open.Load() >= minConnections && l.limit.active() }

// updateBacklog sets the listen backlog that suits the load.
func (l *Listener) updateBacklog() {
	n := longBacklog
	if l.crowded() {
		n = shortBacklog
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n != l.backlog {
		l.backlog = n
		withFD(l.Listener, func(fd int) { _ = syscall.Listen(fd, n) }) // Linux allows it at any time
	}
}

// markExcess marks the newest connections that are too many, and no others. It marks
// none as soon as the limit moves a little, since others would come in their place with
// its next move.
func (l *Listener) markExcess() {
	l.mu.Lock()
	defer l.mu.Unlock()
	open, excess := l.open.Load(), int64(0)
	if limit := l.limit.max.Load(); open-open/8 > limit {
		excess = open - limit
	}
	for c := l.newest; c != nil; c = c.older {
		c.excess.Store(excess > 0)
		excess--
	}
}

// Overloaded reports whether newer connections are to be refused.
func (l *Listener) Overloaded() bool {
	l.adapt(l.probe.now()) // a byte that tells of the overload may still be in flight
	return l.open.Load() > l.limit.max.Load()
}

// Excess reports whether a connection is one of the newest that are too many. It looks
// through every layer over the connection that has a method NetConn, and takes no lock.
func (l *Listener) Excess(c net.Conn) bool {
	if !l.limit.active() {
		return false
	}
	for {
		switch t := c.(type) {
		case *trackedConn:
			return t.excess.Load()
		case interface{ NetConn() net.Conn }: // TLS, for one
			c = t.NetConn()
		default:
			return false
		}
	}
}

// Accept waits for the next connection; under overload not before the open ones had
// their turns.
func (l *Listener) Accept() (net.Conn, error) {
	if l.Overloaded() {
		l.pause(l.serviceTime(turnsBetween))
	}
	for {
		c, err := l.Listener.Accept()
		if err == nil && l.crowded() && peerClosed(c) {
			_ = c.Close() // the client waits for no answer
			continue
		}
		if t, ok := c.(*net.TCPConn); ok {
			if l.open.Load() >= l.limit.max.Load() { // now, not when the wait for c began
				l.evictIdle()
			}
			c = l.track(t)
		}
		return c, err
	}
}

// trackedConn is a connection that tells its listener of its end.
type trackedConn struct {
	*net.TCPConn
	of     *Listener
	excess atomic.Bool  // it is one of the newest that are too many
	holds  atomic.Int64 // until when it keeps its place, by of.clock
	once   sync.Once

	newer, older *trackedConn // of.mu guards them
}

func (l *Listener) track(t *net.TCPConn) *trackedConn {
	c := &trackedConn{TCPConn: t, of: l}
	c.extendDeadline(idleTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.older = l.newest; c.older != nil {
		c.older.newer = c
	}
	l.newest = c
	l.open.Add(1)
	return c
}

func (l *Listener) forget(c *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		l.newest = c.older
	}
	if c.older != nil {
		c.older.newer = c.newer
	}
	c.newer, c.older = nil, nil
	l.open.Add(-1)
}

// Close closes the connection; it then counts no more.
func (c *trackedConn) Close() error {
	c.once.Do(func() { c.of.forget(c) })
	return c.TCPConn.Close()
}

// Under overload a connection on which nothing has arrived for workTime is evicted for
// a newer one, and a connection on which nothing has ever arrived after idleTime.
// Otherwise, on a machine that is slow for other reasons, minConnections silent
// connections could hold all places. A request may be in work for long: telemetry waits
// up to 15 s for the store.
const (
	idleTime    = 10 * time.Second
	workTime    = 20 * time.Second
	longestStep = time.Second // of the clock: longer than from one byte to the next, but in a pause
)

// extendDeadline has the connection keep its place for so long from now on.
func (c *trackedConn) extendDeadline(d time.Duration) { c.holds.Store(c.of.clock.Load() + int64(d)) }

// Read notes that something arrived.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 {
		c.extendDeadline(workTime)
	}
	return n, err
}

// evictIdle closes the connection whose deadline passed first, if one has passed.
func (l *Listener) evictIdle() {
	l.mu.Lock()
	var idle *trackedConn
	now := l.clock.Load()
	for c := l.newest; c != nil; c = c.older {
		if until := c.holds.Load(); until < now {
			idle, now = c, until
		}
	}
	l.mu.Unlock()
	if idle != nil {
		_ = idle.Close() // its server sees that
	}
}

// serviceTime estimates how long n requests take: within one mean queueing delay, every
// open connection is served once.
func (l *Listener) serviceTime(n int) time.Duration {
	return min(longestPause, time.Duration(n)*l.probe.Mean()/time.Duration(max(1, l.open.Load())))
}

func (l *Listener) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.closed:
	}
}

// Close closes the listener and ends a pause of Accept.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// withFD calls f with the descriptor of a listener or connection, if it has one.
func withFD(of any, f func(fd int)) {
	s, ok := of.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
