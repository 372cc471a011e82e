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
	// Only Accept touches these.
	narrow bool // the queue is short
	left   int  // connections until the next pause

	once   sync.Once
	closed chan struct{}
}

// While a node is overloaded, it takes fewRefused connections every longPace, and
// shortQueue may wait, so that who is refused hears of it before long. While it is
// merely busy, it takes one every shortPace, so that it is not overrun before it
// knows. A pause lasts longer where there is much to do, as all does.
//
// With fewCallers connections or less, nobody is refused: where they wait for long,
// the machine is slow, or busy with others, and to be rid of some would not help.
const (
	fewCallers = 128
	busyWait   = 25 * time.Millisecond
	fewRefused = 8
	longPace   = 50 * time.Millisecond
	shortPace  = time.Millisecond
	shortQueue = 32
	longQueue  = 1 << 16 // the kernel makes of it what it allows
)

func newPaced(l net.Listener, g *congestion) *paced {
	return &paced{Listener: l, crowd: g, closed: make(chan struct{})}
}

// overloaded reports whether newer connections are to be refused.
func (l *paced) overloaded() bool { return l.waits(maxWait) }

// overrun reports whether some of those that are open are to go. It takes no lock.
func (l *paced) overrun() bool {
	return l.crowd.overrun.Load() && l.open.Load() > fewCallers && !broken.Has(broken.NoShedding)
}

// waits reports whether many have to wait for longer than that.
func (l *paced) waits(than time.Duration) bool {
	return l.open.Load() > fewCallers && l.crowd.wait() > than && !broken.Has(broken.NoShedding)
}

func (l *paced) Accept() (net.Conn, error) {
	busy := l.waits(busyWait)
	if busy != l.narrow {
		l.narrow = busy
		control(l.Listener, func(fd int) { _ = syscall.Listen(fd, queueOf(busy)) })
	}
	switch l.left--; {
	case !busy:
	case !l.overloaded():
		l.pause(shortPace)
	case l.left <= 0:
		l.pause(longPace)
		l.left = fewRefused
	}
	for {
		c, err := l.Listener.Accept()
		if err == nil && busy && hungUp(c) {
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

// queueOf is how many connections may wait to be accepted. Linux lets a program
// change that at any time.
func queueOf(busy bool) int {
	if busy {
		return shortQueue
	}
	return longQueue
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

// hungUp reports whether the other side of a TCP connection has ended it. Who
// queued for long has often gone.
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
