package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Use decides whether a connection may be evicted. The owner, the server that accepted the
// connection, changes it ([Conn.Become]).
type Use int32

const (
	Silent  Use = iota // before the first request, as in a handshake or a login
	Idle               // between two requests, or while one arrives
	Sending            // the client may not read
	Held               // must not be evicted, as while the owner works on a request
	ended              // the guard has closed it; this never changes
)

// Conn is a connection that a [Guard] counts and may evict. Its owner must close it.
type Conn struct {
	net.Conn
	guard  *Guard
	peer   netip.Addr
	client netip.Prefix
	index  int // in guard.conns, or -1; guarded by guard.mu

	crowded    bool
	overloaded bool
	excess     atomic.Bool // one of the newest, beyond the limit

	use   atomic.Int32
	since atomic.Int64 // when accepted or last sending, in nanoseconds since guard.began
	waits atomic.Int64 // when accepted or last idle, by Probe.ran
}

// Under returns the guarded connection that is c, or below its TLS.
func Under(c net.Conn) *Conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*Conn)
}

// Peer returns the other end's address, as [Plain] does, or the zero Addr.
func (c *Conn) Peer() netip.Addr { return c.peer }

// Crowded reports whether this connection was accepted beyond [Config].Max, and still too many are
// open. It tries to evict another one first, unless there is an overload. Only the owner's
// goroutine may call it.
func (c *Conn) Crowded() bool {
	if c.crowded {
		g := c.guard
		g.mu.Lock()
		defer g.mu.Unlock()
		c.crowded = g.open > g.c.Max && (g.isOver() || !g.evict(false))
	}
	return c.crowded
}

// Overloaded reports whether the overload in which c was accepted still lasts. Only the owner's
// goroutine may call it.
func (c *Conn) Overloaded() bool {
	if c.overloaded {
		c.guard.mu.Lock()
		defer c.guard.mu.Unlock()
		c.overloaded = c.guard.isOver()
	}
	return c.overloaded
}

// Excess reports whether to close the connection after its answer. It takes no lock.
func (c *Conn) Excess() bool { return c.excess.Load() && c.guard.c.Limit.Active() }

// Become returns false if the guard has closed the connection; the owner must then close it, too.
// Only one goroutine at a time may call it.
func (c *Conn) Become(u Use) bool {
	was := c.use.Load()
	for Use(was) != ended && !c.use.CompareAndSwap(was, int32(u)) {
		was = c.use.Load()
	}
	if u == Idle {
		c.waits.Store(c.guard.c.Limit.probe.ran.Load())
	}
	return Use(was) != ended
}

func (c *Conn) Send(now time.Time) bool {
	c.since.Store(int64(now.Sub(c.guard.began)))
	return c.Become(Sending)
}

// CloseWrite is [net.TCPConn.CloseWrite], or returns [errors.ErrUnsupported].
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *Conn) Close() error {
	c.guard.mu.Lock()
	c.remove()
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// end closes the connection if it still has the use. The caller holds guard.mu.
func (c *Conn) end(use Use) bool {
	if !c.use.CompareAndSwap(int32(use), int32(ended)) {
		return false
	}
	c.remove()
	_ = c.Conn.Close()
	return true
}

// The caller of remove holds guard.mu.
func (c *Conn) remove() {
	g := c.guard
	if c.index < 0 {
		return
	}
	g.conns[c.index] = nil
	c.index = -1
	g.open--
	if g.clients[c.client]--; g.clients[c.client] == 0 {
		delete(g.clients, c.client)
	}
}

// Plain makes equal addresses compare equal: without a zone, and IPv4 never as IPv6.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// Client identifies a client by its IPv4 address, or the /64 prefix of its IPv6 address, the
// smallest that one customer gets.
func Client(a netip.Addr) netip.Prefix {
	a = Plain(a)
	p, _ := a.Prefix(min(a.BitLen(), 64))
	return p
}
