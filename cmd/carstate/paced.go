package main

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// paced is a listener of a node that may be overloaded. Then each connection that
// it hands out will be refused, which costs more than to answer a request on one
// that is open. So it hands them out slowly, and only a few may queue meanwhile:
// whom the kernel turns away costs nothing.
type paced struct {
	net.Listener
	crowd   *congestion
	allowed *allowance

	mu    sync.Mutex // guards what follows
	queue int        // how many may wait to be accepted, as last set
	// Connections that were handed out and are not closed, the newest first, and
	// how many they are.
	newest *counted
	open   atomic.Int64 // read without mu
	// How long this process has run, about, in nanoseconds; read without mu. In a pause
	// of it nobody could be heard, so that counts as longestStep at most; last is when
	// the clock was last set.
	clock atomic.Int64
	last  time.Time

	once   sync.Once
	closed chan struct{}
}

// To refuse a connection costs as much as many answers. So an overloaded node gives
// so many turns to those that are open between two newcomers. While there is a limit
// only shortQueue may wait: who is refused is to hear of it before long, and of those
// who wait longer most have hung up, which costs something too.
const (
	turnsBetween = 512
	longestPause = 100 * time.Millisecond
	shortQueue   = 16
	longQueue    = 1 << 16 // the kernel makes of it what it allows
)

// newPaced lets in whoever comes while what arrives waits no longer than wait, and
// leads an overloaded node to a least wait of aim.
func newPaced(l net.Listener, g *congestion, wait, aim time.Duration) *paced {
	// The queue is long to begin with, and may be short if a predecessor has made it so,
	// who is overloaded.
	p := &paced{Listener: l, crowd: g, allowed: newAllowance(wait, aim), queue: longQueue, closed: make(chan struct{})}
	g.follow(p.adapt)
	return p
}

func (l *paced) adapt(now time.Time, w waits) {
	l.goOn(now)
	if l.allowed.adapt(now, w, l.open.Load()) && l.allowed.limited() {
		l.mark()
	}
	l.fit()
}

// goOn sets the clock. Somebody else may have set it since now was read.
func (l *paced) goOn(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if behind := l.last.Sub(now); behind > 0 && behind < longestStep {
		return
	}
	l.clock.Add(int64(min(max(0, now.Sub(l.last)), longestStep)))
	l.last = now
}

// crowded reports whether there is a limit, and so many are open that it may concern
// newer ones.
func (l *paced) crowded() bool { return l.open.Load() >= fewCallers && l.allowed.limited() }

// fit has as many wait to be accepted as there should.
func (l *paced) fit() {
	queue := longQueue
	if l.crowded() {
		queue = shortQueue
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if queue != l.queue {
		l.setQueue(queue)
	}
}

// setQueue changes how many may wait, which Linux lets a program do at any time. mu
// is held.
func (l *paced) setQueue(n int) {
	l.queue = n
	control(l.Listener, func(fd int) { _ = syscall.Listen(fd, n) })
}

// mark marks the newest connections that are too many, and no others: not as soon as
// the limit moves a little, since others would come in their place at its next move.
func (l *paced) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	open, excess := l.open.Load(), int64(0)
	if most := l.allowed.most.Load(); open-open/8 > most {
		excess = open - most
	}
	for c := l.newest; c != nil; c = c.older {
		c.excess.Store(excess > 0)
		excess--
	}
}

// overloaded reports whether newer connections are to be refused.
func (l *paced) overloaded() bool {
	l.adapt(l.crowd.now()) // the byte that tells may still be under way
	return l.open.Load() > l.allowed.most.Load()
}

// excess reports whether a connection is one of the newest that are too many. It
// takes no lock.
func (l *paced) excess(c net.Conn) bool {
	if !l.allowed.limited() {
		return false
	}
	for {
		switch t := c.(type) {
		case *counted:
			return t.excess.Load()
		case *halfOpenConn:
			c = t.tcpConn
		case interface{ NetConn() net.Conn }: // TLS
			c = t.NetConn()
		default:
			return false
		}
	}
}

func (l *paced) Accept() (net.Conn, error) {
	if l.overloaded() {
		l.pause(l.turns(turnsBetween))
	}
	for {
		c, err := l.Listener.Accept()
		if err == nil && l.crowded() && hungUp(c) {
			_ = c.Close() // nobody waits for an answer
			continue
		}
		if t, ok := c.(*net.TCPConn); ok {
			if l.open.Load() >= l.allowed.most.Load() { // now, and not when the wait for c began
				l.makeRoom()
			}
			c = l.count(t)
		}
		return c, err
	}
}

// counted is a connection that says when it is closed.
type counted struct {
	*net.TCPConn
	of     *paced
	excess atomic.Bool  // it is one of the newest that are too many
	holds  atomic.Int64 // until when it holds its place, by of.clock
	once   sync.Once

	newer, older *counted // of.mu guards them
}

func (l *paced) count(t *net.TCPConn) *counted {
	c := &counted{TCPConn: t, of: l}
	c.hold(idleTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.older = l.newest; c.older != nil {
		c.older.newer = c
	}
	l.newest = c
	l.open.Add(1)
	return c
}

func (l *paced) forget(c *counted) {
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

func (c *counted) Close() error {
	c.once.Do(func() { c.of.forget(c) })
	return c.TCPConn.Close()
}

// A connection on which nothing has arrived for workTime makes room for a newer one in
// an overload; one on which nothing ever has, after idleTime. Otherwise, on a machine
// that is slow for other reasons, as many as are never too many could hold all places
// and ask nothing. A request may be in work for long: telemetry waits up to 15 s for the
// store.
const (
	idleTime    = 10 * time.Second
	workTime    = 20 * time.Second
	longestStep = time.Second // that the clock makes: longer than from one byte to the next, but in a pause
)

// hold has the connection hold its place for so long from now on.
func (c *counted) hold(d time.Duration) { c.holds.Store(c.of.clock.Load() + int64(d)) }

// Read notes that something arrived.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 {
		c.hold(workTime)
	}
	return n, err
}

// makeRoom closes the connection that holds its place for no longer, and for the
// longest.
func (l *paced) makeRoom() {
	l.mu.Lock()
	var idle *counted
	now := l.clock.Load()
	for c := l.newest; c != nil; c = c.older {
		if until := c.holds.Load(); until < now {
			idle, now = c, until
		}
	}
	l.mu.Unlock()
	if idle != nil {
		_ = idle.Close() // whoever handles it sees that
	}
}

// turns is about how long so many requests take: in the time that what arrives waits,
// each that is open has its turn once.
func (l *paced) turns(n int) time.Duration {
	_, w := l.crowd.now()
	return min(longestPause, time.Duration(n)*w.mean/time.Duration(max(1, l.open.Load())))
}

func (l *paced) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.closed:
	}
}

func (l *paced) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.queue == shortQueue { // a successor may go on with the port
			l.setQueue(longQueue)
		}
	})
	return l.Listener.Close()
}

// hungUp reports whether the other side of a TCP connection will send no more. Who
// queued for long has often gone; who only ended his half is taken for gone too.
func hungUp(c net.Conn) (gone bool) {
	control(c, func(fd int) {
		const closing = 7 // TCP_CLOSE; TCP_CLOSE_WAIT is 8
		info, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
		state := info & 0xff // the first byte, on the machines that we are built for
		gone = err == nil && (state == closing || state == closing+1)
	})
	return gone
}

// control calls f with the descriptor of a listener or connection, if it has one.
func control(of any, f func(fd int)) {
	s, ok := of.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
