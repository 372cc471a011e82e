package query

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// listener hands out connections that know how they are used, and bounds how
// many there are.
type listener struct {
	net.Listener
	tls     *tls.Config // nil: plain
	max     int64
	over    func() bool // whether there is more to do than is done
	dropped prometheus.Counter
	log     *slog.Logger

	closeOnce sync.Once
	closeErr  error
	closed    chan struct{}

	open atomic.Int64
	mu   sync.Mutex // guards all
	all  map[*conn]struct{}
}

func newListener(ln net.Listener, t *tls.Config, max int64, over func() bool, dropped prometheus.Counter, log *slog.Logger) *listener {
	return &listener{
		Listener: ln, tls: t, max: max, over: over, dropped: dropped, log: log,
		closed: make(chan struct{}),
		all:    make(map[*conn]struct{}),
	}
}

// Accept waits for the next connection. Errors that pass, such as too many open
// files, are waited out here.
func (l *listener) Accept() (net.Conn, error) {
	var pause time.Duration
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if !passes(err) {
				return nil, err
			}
			if pause == 0 {
				l.log.Warn("cannot accept a connection: trying again", "error", err)
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-l.closed:
				return nil, net.ErrClosed
			}
			continue
		}
		if t, ok := c.(interface{ SetWriteBuffer(int) error }); ok {
			_ = t.SetWriteBuffer(sendBuffer) // an error says that it is gone
		}
		n := l.open.Add(1)
		if n > l.max+spareConnections {
			l.open.Add(-1)
			l.dropped.Inc()
			c.Close()
			continue
		}
		k := &conn{Conn: c, from: l, peer: peerOf(c), refuse: l.refuse(n)}
		l.mu.Lock()
		l.all[k] = struct{}{}
		l.mu.Unlock()
		if l.tls != nil {
			return &tlsConn{tls.Server(k, l.tls), k}, nil
		}
		return k, nil
	}
}

// refuse says why the newest of n connections is turned away; nil if it is not.
func (l *listener) refuse(n int64) *failure {
	switch {
	case l.over():
		return failBusy
	case n > l.max && !l.makeRoom():
		return failCrowded
	}
	return nil
}

// refusal says why a connection's first request is turned away; nil: it is answered.
// Who came while there was too much to do is not refused once that is over.
func (c *conn) refusal() *failure {
	if c.refuse == failBusy {
		c.refuse = c.from.refuse(c.from.open.Load())
	}
	return c.refuse
}

// sendBuffer is what the kernel keeps of answers that were not read yet. It takes
// up to 4 MiB otherwise, which thousands of clients that do not read would turn
// into all that there is for TCP.
const sendBuffer = 64 << 10

// passes reports whether an error of accepting ends by itself. Linux also reports
// what befell the connection that was to be accepted.
func passes(err error) bool {
	var temporary interface{ Temporary() bool }
	if errors.As(err, &temporary) && temporary.Temporary() {
		return true
	}
	for _, e := range []syscall.Errno{
		syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Close stops accepting.
func (l *listener) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.closeErr = l.Listener.Close()
	})
	return l.closeErr
}

// closeWaiting wakes the connections that wait for a request, so that whoever
// handles them closes them.
func (l *listener) closeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.all {
		if !c.wake(waiting) {
			c.wake(starting)
		}
	}
}

// makeRoom closes a connection that waits for a request, or for the rest of one, in
// favour of a newer one: otherwise, whoever opens as many as there may be and says
// a word now and then would keep all others out. Which one is left to chance, so
// that it falls mostly on whoever has most. It reports false where it found none.
func (l *listener) makeRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	looks := 0
	for c := range l.all { // in random order
		if c.wake(waiting) {
			return true
		}
		if looks++; looks == roomLooks {
			break
		}
	}
	return false
}

// roomLooks is how many connections are looked at to find one that waits.
const roomLooks = 64

// cut closes every connection at once.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.all {
		c.Conn.Close()
	}
}

// conn is a connection. Whoever handles it closes it; closing it twice is
// harmless.
type conn struct {
	net.Conn
	from   *listener
	peer   netip.Addr // the zero Addr if it has none
	refuse *failure   // what it gets because of when it came; nil: what it asks for; only its handler's goroutine touches it
	linger bool       // the last answer must survive what else is arriving; only its handler's goroutine touches it

	// state is starting, waiting, working or woken.
	state atomic.Int32

	busy bool // a request is counted as in progress; only its handler's goroutine touches it
	once sync.Once
}

// Limits of lingering.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// Close closes the connection. A connection closed while data is still arriving
// is reset, and the reset can overtake the answer that says what was wrong; so
// where we refuse to read on, we say that we are done and read a little longer.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger && half.CloseWrite() == nil {
			c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
		err = c.Conn.Close()
		c.from.open.Add(-1)
		c.from.mu.Lock()
		delete(c.from.all, c)
		c.from.mu.Unlock()
	})
	return err
}

// wake ends the reading of a connection if it is in that state, so that its handler
// closes it. The handler sets no deadline after it saw the state.
func (c *conn) wake(in int32) bool {
	if !c.state.CompareAndSwap(in, woken) {
		return false
	}
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	return true
}

func (c *conn) begin(inFlight *atomic.Int64) {
	if !c.busy {
		c.busy = true
		inFlight.Add(1)
	}
}

func (c *conn) end(inFlight *atomic.Int64) {
	if c.busy {
		c.busy = false
		inFlight.Add(-1)
	}
}

// tlsConn is a TLS connection over a conn. Closing it closes the conn.
type tlsConn struct {
	*tls.Conn
	under *conn
}

// connOf returns the conn under what the listener handed out.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tlsConn); ok {
		return t.under
	}
	return c.(*conn)
}
