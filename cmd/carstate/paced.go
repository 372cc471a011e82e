package main

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"carstate/internal/broken"
)

// paced is a listener of a node that may be overloaded. Then each connection that
// it hands out will be refused, which costs more than to answer a request on one
// that is open. So it hands them out slowly, and only a few may queue meanwhile:
// whom the kernel turns away costs nothing.
type paced struct {
	net.Listener
	crowd *congestion
	open  atomic.Int64 // connections that were handed out and are not closed
	queue int          // how many may wait to be accepted, as last set; only Accept touches it

	once   sync.Once
	closed chan struct{}
}

// To refuse a connection costs as much as many answers. So an overloaded node gives
// so many turns to those that are open between two newcomers, and only shortQueue
// may wait meanwhile, so that who is refused hears of it before long.
//
// With fewCallers connections or less, nobody is refused: where they wait for long,
// the machine is slow, or busy with others, and to be rid of some would not help.
const (
	fewCallers   = 128
	turnsBetween = 256
	longestPause = 100 * time.Millisecond
	shortQueue   = 32
	longQueue    = 1 << 16 // the kernel makes of it what it allows
)

func newPaced(l net.Listener, g *congestion) *paced {
	return &paced{Listener: l, crowd: g, closed: make(chan struct{})}
}

// overloaded reports whether newer connections are to be refused.
func (l *paced) overloaded() bool {
	return l.open.Load() > fewCallers && l.crowd.wait() > maxWait && !broken.Has(broken.NoShedding)
}

// overrun reports whether some of those that are open are to go. It takes no lock.
func (l *paced) overrun() bool {
	return l.crowd.overrun.Load() && l.open.Load() > fewCallers && !broken.Has(broken.NoShedding)
}

func (l *paced) Accept() (net.Conn, error) {
	over := l.overloaded()
	queue := longQueue
	if over {
		queue = shortQueue
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
		if err == nil && over && hungUp(c) {
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
