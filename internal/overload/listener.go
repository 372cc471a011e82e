// Package overload sheds load: a [Probe] measures the queueing delay of the process, and a
// [Listener] limits its open connections by that delay. The package limits connections only: it
// must never look at a request or refuse one itself.
//
// The package counts and evicts connections by itself, below [example.org/carstate/internal/netguard], for
// three reasons. It needs the connections in the order in which they were accepted. It measures how
// long connections are idle by a clock that stops while the process is paused. And its limit
// changes with the delay.
//
//	var probe overload.Probe
//	go probe.Run(ctx)
//	l := overload.NewListener(port, &probe, overload.Queries)
//	srv.Serve(l) // asks l.Overloaded for each new connection, l.Excess for each answer
package overload

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Listener is a net.Listener that sheds load. Under overload, Accept slows down and the listen
// backlog shrinks, so that the kernel refuses most new connections without work for the process.
// Otherwise the server itself would have to refuse these connections, and each refusal costs more
// CPU time than an answer on an open connection. Make a Listener with [NewListener].
type Listener struct {
	net.Listener
	probe *Probe
	limit *connLimit

	// mu guards backlog, last and conns. open and clock are written under mu and read without it.
	mu      sync.Mutex
	backlog int          // the listen backlog that was last set
	conns   list.List    // the open connections, each a *trackedConn, the newest first
	open    atomic.Int64 // their number
	// clock is approximately how long this process has run, in nanoseconds. It measures how long
	// connections are idle. A paused process cannot read from its connections, so a pause of any
	// length adds at most longestStep to clock. last is the time at which clock was last advanced.
	clock atomic.Int64
	last  time.Time

	once   sync.Once
	closed chan struct{}
}

// An overloaded listener pauses before each Accept, because the refusal of a connection costs as
// much as many answers. The pause is the estimated time in which the server answers turnsBetween
// requests, but at most longestPause.
//
// The listen backlog holds up to longBacklog connections. It is reduced to shortBacklog while the
// number of connections is limited and at least minConnections are open. With a short backlog, a
// client that is not admitted gets its refusal soon, and little CPU time is spent on connections
// whose clients have already given up.
const (
	turnsBetween = 512
	longestPause = 100 * time.Millisecond
	shortBacklog = 16
	longBacklog  = 1 << 16 // the kernel reduces it to its own maximum
)

// NewListener returns a listener for the connections of l. It sheds load when the queueing delays
// that p measures exceed the bounds b.
func NewListener(l net.Listener, p *Probe, b Bounds) *Listener {
	s := &Listener{Listener: l, probe: p, limit: newConnLimit(b), backlog: longBacklog, closed: make(chan struct{})}
	p.follow(s.update)
	return s
}

// update sets limit, marks and listen backlog from the delays d, measured at the time now.
func (l *Listener) update(now time.Time, d delays) {
	l.advanceClock(now)
	if l.limit.adapt(now, d, l.open.Load()) && l.limit.active() {
		l.markExcess()
	}
	l.updateBacklog()
}

// advanceClock advances clock to the time now, unless it is already beyond that time.
func (l *Listener) advanceClock(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if behind := l.last.Sub(now); behind > 0 && behind < longestStep {
		return
	}
	l.clock.Add(int64(min(max(0, now.Sub(l.last)), longestStep)))
	l.last = now
}

// Limited reports whether the number of open connections is limited at present.
func (l *Listener) Limited() bool { return l.limit.active() }

// crowded reports whether connections are limited and at least minConnections of them are open.
func (l *Listener) crowded() bool { return l.open.Load() >= minConnections && l.limit.active() }

// updateBacklog makes the listen backlog short while the listener is crowded, and otherwise long.
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

// markExcess marks the connections that are to be closed, and unmarks all others. If n more
// connections are open than the limit allows, it marks the newest n. But if n is at most an eighth
// of the open connections, it marks none: closing them would be useless, because the next small
// change of the limit would admit others in their place.
func (l *Listener) markExcess() {
	l.mu.Lock()
	defer l.mu.Unlock()
	open, excess := l.open.Load(), int64(0)
	if limit := l.limit.max.Load(); open-open/8 > limit {
		excess = open - limit
	}
	for e := l.conns.Front(); e != nil; e = e.Next() {
		e.Value.(*trackedConn).excess.Store(excess > 0)
		excess--
	}
}

// Overloaded reports whether new connections are to be refused, because more connections are open
// than the limit allows.
func (l *Listener) Overloaded() bool {
	l.update(l.probe.now()) // includes the delay so far of a byte of the probe that is still in flight
	return l.open.Load() > l.limit.max.Load()
}

// Excess reports whether a connection is to be closed, because it is one of the newest connections
// and too many are open. c is a connection from Accept, or a wrapper of one that has a method
// NetConn, such as TLS. For any other connection, Excess returns false. Excess takes no lock.
func (l *Listener) Excess(c net.Conn) bool {
	if !l.limit.active() {
		return false
	}
	for {
		if t, ok := c.(*trackedConn); ok {
			return t.excess.Load()
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn }) // TLS, for one
		if !ok {
			return false
		}
		c = wrapper.NetConn()
	}
}

// Accept waits for the next connection and returns it. Under overload it first pauses, for at most
// longestPause, so that requests on the open connections are served. At the limit on connections,
// it also closes an idle connection (see evictIdle). While the number of connections is limited and
// at least minConnections are open, it closes a new connection whose client will send no more (see
// peerClosed), and waits for the next. Its errors are those of the underlying listener.
func (l *Listener) Accept() (net.Conn, error) {
	if l.Overloaded() {
		l.pause(l.serviceTime())
	}
	for {
		c, err := l.Listener.Accept()
		if err == nil && l.crowded() && peerClosed(c) {
			_ = c.Close() // the client does not wait for an answer
			continue
		}
		if t, ok := c.(*net.TCPConn); ok {
			if l.open.Load() >= l.limit.max.Load() { // the limit may have changed while c was awaited
				l.evictIdle()
			}
			c = l.track(t)
		}
		return c, err
	}
}

// trackedConn is an accepted connection, which its listener counts until it is closed.
type trackedConn struct {
	*net.TCPConn
	listener *Listener
	excess   atomic.Bool   // the connection is one of the newest, beyond the limit
	deadline atomic.Int64  // when the connection becomes idle and may be evicted, by listener.clock
	element  *list.Element // of listener.conns
	once     sync.Once
}

func (l *Listener) track(t *net.TCPConn) *trackedConn {
	c := &trackedConn{TCPConn: t, listener: l}
	c.extendDeadline(idleTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.element = l.conns.PushFront(c)
	l.open.Add(1)
	return c
}

// Close closes the connection and removes it from the count. Closing it twice is harmless.
func (c *trackedConn) Close() error {
	c.once.Do(func() {
		l := c.listener
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns.Remove(c.element)
		l.open.Add(-1)
	})
	return c.TCPConn.Close()
}

// idleTime and workTime determine when a connection is idle. A connection on which nothing has ever
// arrived is idle after idleTime. Any other connection is idle when nothing has arrived for
// workTime. At the limit on connections, the listener evicts an idle connection to admit a newer
// one. Without eviction, on a machine that is slow because of other work, minConnections silent
// connections could keep all others out. workTime is longer than idleTime because a request may
// take long: for example, telemetry waits up to 15 s for the store.
const (
	idleTime = 10 * time.Second
	workTime = 20 * time.Second
	// longestStep is the most by which one measurement of the probe advances a listener's clock.
	// The time between two measurements is longer only if the process was paused.
	longestStep = time.Second
)

// extendDeadline protects the connection from eviction for the time d from now on.
func (c *trackedConn) extendDeadline(d time.Duration) {
	c.deadline.Store(c.listener.clock.Load() + int64(d))
}

// Read reads from the connection. If anything has arrived, the connection becomes idle only after
// another workTime.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 {
		c.extendDeadline(workTime)
	}
	return n, err
}

// evictIdle closes the connection that has been idle for the longest time, if there is one.
func (l *Listener) evictIdle() {
	l.mu.Lock()
	var idle *trackedConn
	now := l.clock.Load()
	for e := l.conns.Front(); e != nil; e = e.Next() {
		c := e.Value.(*trackedConn)
		if until := c.deadline.Load(); until < now {
			idle, now = c, until
		}
	}
	l.mu.Unlock()
	if idle != nil {
		_ = idle.Close() // its server's Read fails
	}
}

// serviceTime estimates how long the server takes to answer n = turnsBetween requests: n × D / C,
// with the mean queueing delay D and C open connections. This assumes that the server answers one
// request of each of them in D. The result is at most longestPause.
func (l *Listener) serviceTime() time.Duration {
	return min(longestPause, turnsBetween*l.probe.Mean()/time.Duration(max(1, l.open.Load())))
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

// withFD calls f with the file descriptor of a listener or connection, if it has one.
func withFD(of any, f func(fd int)) {
	s, ok := of.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
