package node

import (
	"bytes"
	"net"
	"sync"
)

// halfOpen is a listener that knows on which of its connections no request has
// arrived yet: a spare one of a browser, a client that went away after half a
// head. net/http lets such a connection be for five seconds when it shuts down,
// in the hope of a request; a node that ends has no time for that.
type halfOpen struct {
	net.Listener
	tls bool // what arrives cannot be read here: the first byte counts as a request

	mu      sync.Mutex // guards what follows
	waiting map[*halfOpenConn]struct{}
	ending  bool
}

func newHalfOpen(l net.Listener, tls bool) *halfOpen {
	return &halfOpen{Listener: l, tls: tls, waiting: make(map[*halfOpenConn]struct{})}
}

func (l *halfOpen) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn.(tcpConn)); c != nil {
			return c, nil
		}
		_ = conn.Close() // it came while we were ending
	}
}

// admit returns nil once the waiting connections were closed.
func (l *halfOpen) admit(conn tcpConn) *halfOpenConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return nil
	}
	c := &halfOpenConn{tcpConn: conn, of: l, waits: true}
	l.waiting[c] = struct{}{}
	return c
}

// closeWaiting closes the connections on which no request has arrived, and those
// that are still to be accepted.
func (l *halfOpen) closeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
	for c := range l.waiting {
		_ = c.tcpConn.Close() // it was of no use to anybody
	}
}

func (l *halfOpen) forget(c *halfOpenConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, c)
}

// tcpConn is what else than to read and write is asked of a connection.
type tcpConn interface {
	net.Conn
	CloseWrite() error              // net/http has said its last, and what still arrives must not reset it
	SetWriteBuffer(bytes int) error // bounds what the kernel keeps of answers that are not read
}

// halfOpenConn is read by one goroutine.
type halfOpenConn struct {
	tcpConn
	of    *halfOpen
	waits bool    // no request has arrived; owned by who reads
	tail  [3]byte // what was read last
}

// Read looks for the empty line that ends a request's head.
func (c *halfOpenConn) Read(b []byte) (int, error) {
	n, err := c.tcpConn.Read(b)
	if c.waits && n > 0 {
		seen := append(c.tail[:], b[:n]...)
		if c.of.tls || bytes.Contains(seen, []byte("\n\r\n")) || bytes.Contains(seen, []byte("\n\n")) {
			c.waits = false
			c.of.forget(c)
		}
		copy(c.tail[:], seen[len(seen)-len(c.tail):])
	}
	return n, err
}

// NetConn is the connection below. The load shedding looks for its own there.
func (c *halfOpenConn) NetConn() net.Conn { return c.tcpConn }

func (c *halfOpenConn) Close() error {
	c.of.forget(c)
	return c.tcpConn.Close()
}
