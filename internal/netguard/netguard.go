// Package netguard limits the open connections of a listener, in the same way on every listener. At
// the limit it evicts a connection, if one may be closed, to admit a newer one. It also limits how
// much the kernel buffers for a client that does not read, and Accept survives a lack of file
// descriptors. It must never evict a connection that its owner holds ([Held]).
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

// Use is the present use of a connection. If there are too many connections, it decides which of
// them is evicted.
type Use int32

// The uses of a connection. A new connection is Silent; its owner changes the use.
const (
	// Silent is the use before the first request. The client is in a handshake, or has not logged
	// in, or has sent no complete request yet.
	Silent Use = iota
	// Idle is the use between two requests, or while a request arrives and the owner does not work
	// on it yet.
	Idle
	// Sending is the use while the owner sends something. If the client has not read all of it
	// after staleAfter, it counts as a client that does not read.
	Sending
	// Held is the use while the owner works on a request. A held connection is never
	// evicted.
	Held
	// evicted is the use of a connection that was closed to admit a newer one, or woken by End. Its
	// owner must close it.
	evicted
)

// staleAfter is how long a connection may be silent, or may take to read an answer. After that time
// it is evicted before idle connections.
const staleAfter = time.Second

// searchSize is how many connections are examined to find the best one to evict. If none of them
// can be evicted, up to maxSearch are examined.
const searchSize, maxSearch = 64, 1024

// searchPause is the pause after a search that found no connection to evict; during it, no search
// is made. Otherwise, if all connections are held, each new connection would cost a long search.
const searchPause = 10 * time.Millisecond

// warnInterval is the shortest time between two warnings of Accept.
const warnInterval = time.Minute

// Config configures a [Guard]. Max is required.
type Config struct {
	// Max is the maximum number of open connections. At the maximum, one connection is evicted for
	// each new one.
	Max int
	// Spare is how many connections beyond Max are accepted if none can be evicted. For these
	// connections [Conn.Crowded] is true, so that the owner can tell the client the reason. Further
	// connections are closed at once.
	Spare int
	// SendBuffer limits how many unread bytes the kernel buffers for a client. If zero, only the
	// kernel's own limit applies, which is up to 4 MiB per connection.
	SendBuffer int
	// Full reports whether a newer connection would be refused anyway, so that no connection is to
	// be evicted to admit it. If nil, that is never the case.
	Full func() bool
	// Dropped is called for each connection that is closed because there are too many. If nil,
	// nothing is called.
	Dropped func()
	// Log gets a warning if Accept fails with a transient error, such as a lack of file
	// descriptors. If nil, nothing is logged.
	Log *slog.Logger
}

// Guard limits the open connections of one listener, or of several together.
type Guard struct {
	c Config

	// mu guards all fields below. A connection is added to open and clients, and removed from them,
	// in one critical section, so that open and clients always agree.
	mu      sync.Mutex
	open    map[*Conn]struct{}
	clients map[netip.Prefix]int // the number of open connections of each client
	ending  bool                 // End was called
	// noneUntil is the end of the present searchPause, in Unix nanoseconds. Until then, no search
	// for a connection to evict is made.
	noneUntil int64
}

// New returns a guard.
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

// Listener returns a listener whose Accept returns the connections of l under the guard, each
// as a [*Conn].
func (g *Guard) Listener(l net.Listener) net.Listener {
	return &listener{Listener: l, guard: g, closed: make(chan struct{})}
}

// Count returns the number of open connections that have one of the uses. If no use is given, it
// counts all open connections.
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

// admit puts a connection under the guard. If there are too many connections, it evicts another
// one. It returns nil if there is no room, or the guard has ended.
func (g *Guard) admit(nc net.Conn) *Conn {
	if t, ok := nc.(interface{ SetWriteBuffer(int) error }); ok && g.c.SendBuffer > 0 {
		_ = t.SetWriteBuffer(g.c.SendBuffer) // it fails only if the connection is closed already
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

// peerOf returns the address at the other end of a connection in a form in which equal addresses
// compare equal: it has no zone, and IPv4 is never written as IPv6. It returns the zero Addr if
// there is no such address.
func peerOf(c net.Conn) netip.Addr {
	if t, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// clientOf returns the client to which the connections from an address belong. The client is the
// IPv4 address itself, or the IPv6 network of 64 bits that contains the address.
func clientOf(peer netip.Addr) netip.Prefix {
	bits := 64
	if peer.Is4() {
		bits = 32
	}
	p, _ := peer.Prefix(bits)
	return p
}

// evict closes a connection to admit a newer one, and reports whether it found one. Without
// eviction, a client that opens Max connections would keep all others out. The caller holds mu.
//
// The order of eviction among the examined connections is: first those that were silent, or did not
// read an answer, for staleAfter; then idle ones; last those that became silent or began to send
// less than staleAfter ago, since they may be about to send a request. If a client has more than an
// eighth of the maximum number of connections, its connections of the last kind are evicted first,
// too. Among connections of the same rank, one of the client with the most connections is evicted.
//
// The connection is closed here, and not only by its owner. The newer connection takes its place at
// once, so its file descriptor must be free, even if the owner notices the eviction late.
func (g *Guard) evict() bool {
	now := time.Now().UnixNano()
	if now < g.noneUntil {
		return false
	}
	for range 3 { // the chosen connection may become held at this moment
		victim, use := g.choose(now)
		if victim == nil {
			g.noneUntil = now + int64(searchPause)
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

// choose returns the connection to evict and its use, or nil if there is none. The caller
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
		if looked++; looked >= searchSize && victim != nil || looked == maxSearch {
			break
		}
	}
	return victim, use
}

// remove removes a connection from the count, if it is counted. The caller holds mu.
func (g *Guard) remove(c *Conn) {
	if _, ok := g.open[c]; !ok {
		return
	}
	delete(g.open, c)
	if g.clients[c.client]--; g.clients[c.client] == 0 {
		delete(g.clients, c.client)
	}
}

// End wakes all silent and idle connections, so that their owners close them, and admits no
// more connections.
func (g *Guard) End() { g.wakeAll(Silent, Idle) }

// EndSilent is like [Guard.End], but wakes only silent connections. It is for a server of net/http,
// whose Shutdown closes idle connections by itself, but would wait five seconds for the first
// request on a silent one.
func (g *Guard) EndSilent() { g.wakeAll(Silent) }

func (g *Guard) wakeAll(uses ...Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = true
	for c := range g.open {
		for _, u := range uses {
			if c.wake(u) {
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

// Conn is a connection under a guard. Its owner must close it; closing it twice is harmless.
type Conn struct {
	net.Conn
	guard   *Guard
	peer    netip.Addr
	client  netip.Prefix
	crowded bool // used by the owner's goroutine only

	use   atomic.Int32
	since atomic.Int64 // when it was accepted or last began to send, in Unix nanoseconds
	http  inHTTP
}

// Under returns the guarded connection below TLS and other layers, or nil if c has none.
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

// NetConn returns the connection below the guard.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Peer returns the address at the other end, without a zone and never as IPv4 in IPv6. If there is
// no such address, it returns the zero Addr.
func (c *Conn) Peer() netip.Addr { return c.peer }

// Crowded reports whether the connection was accepted beyond the maximum (see Config.Spare) and is
// still beyond it. Before it returns true, it tries to evict another connection to make room. Only
// the owner's goroutine may call it.
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

// Become changes the use of the connection. It returns false if the connection was evicted; its
// owner must then close it. Only one goroutine at a time may change the use.
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

// Send is like Become([Sending]). The parameter now is the time at which sending begins.
func (c *Conn) Send(now time.Time) bool {
	c.since.Store(now.UnixNano())
	return c.Become(Sending)
}

// wake wakes the connection if it has the given use, and reports whether it did so. The read or
// write for which the owner waits then fails, so that the owner closes the connection.
func (c *Conn) wake(used Use) bool {
	if !c.use.CompareAndSwap(int32(used), int32(evicted)) {
		return false
	}
	_ = c.Conn.SetDeadline(past)
	return true
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// SetDeadline is that of [net.Conn]. But the deadlines of an evicted connection remain in the past,
// also those that SetReadDeadline and SetWriteDeadline set.
func (c *Conn) SetDeadline(t time.Time) error { return c.unlessEvicted(c.Conn.SetDeadline, t) }

// SetReadDeadline is that of [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.unlessEvicted(c.Conn.SetReadDeadline, t) }

// SetWriteDeadline is that of [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.unlessEvicted(c.Conn.SetWriteDeadline, t)
}

func (c *Conn) unlessEvicted(set func(time.Time) error, t time.Time) error {
	err := set(t)
	if Use(c.use.Load()) == evicted { // the eviction came before set, or during it
		return set(past)
	}
	return err
}

// CloseWrite closes the sending side. It returns [errors.ErrUnsupported] if the connection has
// no separate sides.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	c.guard.mu.Lock()
	c.guard.remove(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// listener returns guarded connections.
type listener struct {
	net.Listener
	guard  *Guard
	once   sync.Once
	err    error // the result of closing
	closed chan struct{}
	warned time.Time // the time of the last warning; used by the goroutine in Accept only
}

// Accept waits for the next connection for which there is room. After a transient error it tries
// again, with backoff. If the process has no more file descriptors, it also evicts a connection.
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
		if now := time.Now(); now.Sub(l.warned) >= warnInterval {
			l.warned = now
			l.guard.c.Log.Warn("cannot accept a connection; will retry", "error", err)
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

// isTransient reports whether an error of Accept is transient. On Linux, Accept also returns errors
// that are pending on the new connection; see accept(2).
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
