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
	open    atomic.Int64 // connections that were handed out and are not closed
	queue   int          // how many may wait to be accepted, as last set; only Accept touches it

	once   sync.Once
	closed chan struct{}
}

// To refuse a connection costs as much as many answers. So an overloaded node gives
// so many turns to those that are open between two newcomers. While there is a limit
// only shortQueue may wait: who is refused is to hear of it before long, and of those
// who wait longer most have hung up, which costs something too.
const (
	turnsBetween = 256
	longestPause = 100 * time.Millisecond
	shortQueue   = 32
	longQueue    = 1 << 16 // the kernel makes of it what it allows
)

// newPaced lets in whoever comes while what arrives waits no longer than wait.
func newPaced(l net.Listener, g *congestion, wait time.Duration) *paced {
	p := &paced{Listener: l, crowd: g, allowed: newAllowance(wait), closed: make(chan struct{})}
	g.follow(p.adapt)
	return p
}

func (l *paced) adapt(now time.Time, wait time.Duration) {
	l.allowed.adapt(now, wait, l.open.Load())
}

// overloaded reports whether newer connections are to be refused.
func (l *paced) overloaded() bool {
	now := time.Now()
	l.adapt(now, l.crowd.waitAt(now)) // the byte that tells may still be under way
	return l.open.Load() > l.allowed.most.Load()
}

// overrun reports whether so many more connections are open than there should be that
// some are to go: not as soon as the limit moves a little, since others would come in
// their place at its next move. It takes no lock.
func (l *paced) overrun() bool {
	open := l.open.Load()
	return open-open/8 > l.allowed.most.Load()
}

func (l *paced) Accept() (net.Conn, error) {
	over := l.overloaded()
	queue := longQueue
	if l.open.Load() >= fewCallers && l.allowed.limited() {
		queue = shortQueue
	}
	if over {
		l.pause(l.turns(turnsBetween))
	}
	// Linux lets a program change it at any time. Whoever had the port before may
	// have left it short.
	if queue != l.queue {
		l.queue = queue
		control(l.Listener, func(fd int) { _ = syscall.Listen(fd, queue) })
	}
	for {
		c, err := l.Listener.Accept()
		if err == nil && queue == shortQueue && hungUp(c) {
			_ = c.Close() // nobody waits for an answer
			continue
		}
		if t, ok := c.(*net.TCPConn); ok {
			l.open.Add(1)
			c = &counted{TCPConn: t, of: l}
		}
		return c, err
	}
}

// counted is a connection that says when it is closed.
type counted struct {
	*net.TCPConn
	of   *paced
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.of.open.Add(-1) })
	return c.TCPConn.Close()
}

// turns is about how long so many requests take: in the time that what arrives waits,
// each that is open has its turn once.
func (l *paced) turns(n int) time.Duration {
	return min(longestPause, time.Duration(n)*l.crowd.wait()/time.Duration(max(1, l.open.Load())))
}

func (l *paced) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.closed:
	}
}

func (l *paced) Close() error {
	l.once.Do(func() { close(l.closed) })
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
