// Package netguard bounds the connections of a listener, the same way on every listener:
// it counts them, and closes one that may be closed in favour of a newer one. It bounds
// what the kernel buffers for a client that does not read, and survives a lack of
// descriptors. It must never close a connection that its owner holds.
package netguard

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Use is what a connection is used for at the moment. It decides which connection is
// closed if there are too many.
type Use int32

// The uses.
const (
	// Silent: nothing has arrived that counts: the client is in a handshake, or has not
	// logged in, or has sent no request yet.
	Silent Use = iota
	// Idle: the client is between two requests, or in the middle of one that nobody
	// works on.
	Idle
	// Sending: the client is being sent something. After staleAfter it does not read.
	Sending
	// Held: its owner works for it. It is never closed.
	Held
	// evicted: it was closed for a newer one, or woken at the end; its owner is to close it.
	evicted
)

// staleAfter is how long a connection may be silent, or may take to read what it is
// sent, until it is closed before those that are idle.
const staleAfter = time.Second

// looks is how many connections are looked at to find the best one to close, and mostLooks
// how many if there is none among them.
const looks, mostLooks = 64, 1024

// noneAgain is how long no further look is taken after one that found none: if all
// connections are held, each newer one would cost a long look.
const noneAgain = 10 * time.Millisecond

// warnAgain is how long a warning of Accept is not repeated.
const warnAgain = time.Minute

// Config is what a [Guard] needs.
type Config struct {
	// Max is how many connections may be open. For a newer one another is closed.
	Max int
	// Spare is how many more are handed out if none can be closed, with
	// [Conn.Crowded] set, so that their owner can say so.
	Spare int
	// SendBuffer bounds what the kernel keeps of what a client has not read, in bytes.
	// Without a bound it is up to 4 MiB a connection.
	SendBuffer int
	// Full reports that no connection is to be closed for a newer one, since the newer
	// one would only be refused; nil: never.
	Full func() bool
	// Dropped is called for each connection that is closed because there are too many;
	// nil: nothing is called.
	Dropped func()
	// Log gets a warning if descriptors run out; nil: nothing is logged.
	Log *slog.Logger
}

// Guard bounds the connections of one listener or of several together.
type Guard struct {
	c Config

	mu      sync.Mutex // guards what follows
	open    map[*Conn]struct{}
	clients map[netip.Prefix]int
	ending  bool
	// noneUntil is until when no connection is looked for to close, in Unix nanoseconds.
	noneUntil int64
}

// New makes a guard.
func New(c Config) *Guard {
	if c.Full == nil {
		c.Full = func() bool { return false }
	}
	if c.Dropped == nil {
		c.Dropped = func() {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Guard{c: c, open: make(map[*Conn]struct{}), clients: make(map[netip.Prefix]int)}
}

// Listener hands out the connections of l under the guard, each as a [*Conn].
func (g *Guard) Listener(l net.Listener) net.Listener {
	return &listener{Listener: l, guard: g, closed: make(chan struct{})}
}

// Count is how many connections are open that are used so; of all uses, if none is named.
func (g *Guard) Count(uses ...Use) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(uses) == 0 {
		return len(g.open)
	}
	for c := range g.open {
		if slices.Contains(uses, Use(c.use.Load())) {
			n++
		}
	}
	return n
}

// admit takes in a connection, and returns nil if there is no room for it.
func (g *Guard) admit(nc net.Conn) *Conn {
	if t, ok := nc.(interface{ SetWriteBuffer(int) error }); ok && g.c.SendBuffer > 0 {
		_ = t.SetWriteBuffer(g.c.SendBuffer) // an error means that it is closed already
	}
	peer := peerOf(nc)
	c := &Conn{Conn: nc, guard: g, peer: peer, client: clientOf(peer)}
	c.since.Store(time.Now().UnixNano())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return nil
	}
	if len(g.open) >= g.c.Max {
		room := false
		if !g.c.Full() {
			room = g.evict()
		}
		c.crowded = !room
		if !room && len(g.open) >= g.c.Max+g.c.Spare {
			g.c.Dropped()
			return nil
		}
	}
	g.open[c] = struct{}{}
	g.clients[c.client]++
	return c
}

// peerOf is the address at the other end of a connection in the one form that compares,
// the zero Addr if it has none.
func peerOf(c net.Conn) netip.Addr {
	if t, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// clientOf is the client in whose share a connection counts: an address, or by IPv6 its
// network of 64 bits.
func clientOf(peer netip.Addr) netip.Prefix {
	bits := 64
	if peer.Is4() {
		bits = 32
	}
	p, _ := peer.Prefix(bits)
	return p
}

// evict closes a connection in favour of a newer one, and reports whether it found one.
// Otherwise a client that opens as many as there may be would keep all others out. The
// caller holds mu.
//
// Of those looked at, the first to go are silent connections, and those that do not read
// what they are sent; then those that are idle. Connections that became silent just now
// go last, unless their client has more than an eighth of all: they may be the next
// request. Among equals, one of the client that has most of them goes.
//
// The connection is closed here and now: its place is given away, so its descriptor must
// be free, however long its owner takes to notice.
func (g *Guard) evict() bool {
	now := time.Now().UnixNano()
	if now < g.noneUntil {
		return false
	}
	for range 3 { // what was chosen may become held at this moment
		victim, use := g.choose(now)
		if victim == nil {
			g.noneUntil = now + int64(noneAgain)
			return false
		}
		if victim.use.CompareAndSwap(int32(use), int32(evicted)) {
			g.c.Dropped()
			g.remove(victim)
			_ = victim.Conn.Close()
			return true
		}
	}
	return false
}

// choose looks for the connection to close, and returns nil if there is none. The caller
// holds mu.
func (g *Guard) choose(now int64) (victim *Conn, use Use) {
	best, most, looked := 3, 0, 0
	for c := range g.open { // in random order
		u := Use(c.use.Load())
		rank := 3
		n := g.clients[c.client]
		switch {
		case u == Idle:
			rank = 1
		case u == Silent || u == Sending:
			rank = 2
			if now-c.since.Load() >= int64(staleAfter) || n > g.c.Max/8 {
				rank = 0
			}
		}
		if rank < best || rank == best && rank < 3 && n > most {
			victim, use, best, most = c, u, rank, n
		}
		if looked++; looked >= looks && victim != nil || looked == mostLooks {
			break
		}
	}
	return victim, use
}

// remove takes a connection out of the count. The caller holds mu.
func (g *Guard) remove(c *Conn) {
	if _, ok := g.open[c]; !ok {
		return
	}
	delete(g.open, c)
	if g.clients[c.client]--; g.clients[c.client] == 0 {
		delete(g.clients, c.client)
	}
}

// End wakes all connections that nobody works for, so that their owners close them, and
// admits no more.
func (g *Guard) End() { g.end(Silent, Idle) }

// EndSilent is End for connections on which no request has arrived yet. For a server of
// net/http, which waits for five seconds for their requests when it shuts down.
func (g *Guard) EndSilent() { g.end(Silent) }

func (g *Guard) end(uses ...Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = true
	for c := range g.open {
		for _, u := range uses {
			if c.end(u) {
				break
			}
		}
	}
}

// Cut closes every connection at once.
func (g *Guard) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		_ = c.Conn.Close()
	}
}

// Conn is a connection under a guard. Its owner closes it; closing it twice is harmless.
type Conn struct {
	net.Conn
	guard   *Guard
	peer    netip.Addr
	client  netip.Prefix
	crowded bool // only its owner's goroutine touches it

	use   atomic.Int32
	since atomic.Int64 // when it became silent or began to send, in Unix nanoseconds
	http  inHTTP
}

// Under returns the guarded connection below TLS and other layers; nil if there is none.
func Under(c net.Conn) *Conn {
	for {
		switch t := c.(type) {
		case *Conn:
			return t
		case interface{ NetConn() net.Conn }:
			c = t.NetConn()
		default:
			return nil
		}
	}
}

// NetConn is the connection below the guard.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Peer is the address at the other end, without a zone and never as IPv4 in IPv6; the
// zero Addr if there is none.
func (c *Conn) Peer() netip.Addr { return c.peer }

// Crowded reports that there was no room for the connection when it came, and that there
// still is none.
func (c *Conn) Crowded() bool {
	if !c.crowded {
		return false
	}
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	c.crowded = len(g.open) > g.c.Max && (g.c.Full() || !g.evict())
	return c.crowded
}

// Become changes what the connection is used for. It reports false if the connection was
// evicted: its owner closes it then. One goroutine at a time changes the use.
func (c *Conn) Become(u Use) bool {
	for {
		was := c.use.Load()
		if Use(was) == evicted {
			return false
		}
		if c.use.CompareAndSwap(was, int32(u)) {
			return true
		}
	}
}

// Send is Become([Sending]), as of a time.
func (c *Conn) Send(now time.Time) bool {
	c.since.Store(now.UnixNano())
	return c.Become(Sending)
}

// end wakes the connection if it is used so: what its owner waits for fails, and so it
// closes the connection.
func (c *Conn) end(used Use) bool {
	if !c.use.CompareAndSwap(int32(used), int32(evicted)) {
		return false
	}
	_ = c.Conn.SetDeadline(past)
	return true
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// The deadlines of an evicted connection stay over, whatever its owner sets.

// SetDeadline is that of [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error { return c.unlessEvicted(c.Conn.SetDeadline, t) }

// SetReadDeadline is that of [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.unlessEvicted(c.Conn.SetReadDeadline, t) }

// SetWriteDeadline is that of [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.unlessEvicted(c.Conn.SetWriteDeadline, t)
}

func (c *Conn) unlessEvicted(set func(time.Time) error, t time.Time) error {
	err := set(t)
	if Use(c.use.Load()) == evicted { // before set, or while it ran
		return set(past)
	}
	return err
}

// CloseWrite ends the sending half, if the connection has halves.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection and gives its place back.
func (c *Conn) Close() error {
	c.guard.mu.Lock()
	c.guard.remove(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// listener hands out guarded connections.
type listener struct {
	net.Listener
	guard  *Guard
	once   sync.Once
	err    error // of closing
	closed chan struct{}
	warned time.Time // when Accept logged an error last; only its caller's goroutine touches it
}

// Accept waits for the next connection for which there is room. Transient errors are
// waited out. If descriptors run out, a connection is closed for the newer one.
func (l *listener) Accept() (net.Conn, error) {
	var pause time.Duration
	for {
		nc, err := l.Listener.Accept()
		if err == nil {
			if c := l.guard.admit(nc); c != nil {
				return c, nil
			}
			_ = nc.Close()
			continue
		}
		if !isTransient(err) {
			return nil, err
		}
		if now := time.Now(); now.Sub(l.warned) >= warnAgain {
			l.warned = now
			l.guard.c.Log.Warn("cannot accept a connection: trying again", "error", err)
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.guard.mu.Lock()
			l.guard.evict()
			l.guard.mu.Unlock()
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(pause):
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close stops accepting. Closing it twice is harmless.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
	})
	return l.err
}

// isTransient reports whether an error of Accept is transient. On Linux, Accept also
// returns pending errors of the new connection; see accept(2).
func isTransient(err error) bool {
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
