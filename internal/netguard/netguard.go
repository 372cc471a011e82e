// Package netguard limits the open connections of a listener, in the same way on every listener. If
// a new connection arrives at the limit, the package evicts (closes) an open one to admit it,
// unless no open connection may be closed. In that case it closes the new connection, except for as
// many as [Config].Spare says. It also limits how much the kernel buffers for a client that does
// not read. The Accept of its listeners continues after a lack of file descriptors. The
// package also serves the connections of all servers, and shuts the servers down. It must never evict a
// connection that its owner holds ([Held]).
package netguard

import (
	"cmp"
	"context"
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

// Use says what a connection is used for at present, such as waiting for a request. If there are
// too many connections, their uses decide which of them is evicted, that is, closed to admit a
// newer one.
type Use int32

// The uses of a connection. A new connection is Silent. Later its owner, the server that accepted
// the connection, changes the use ([Conn.Become]).
const (
	// Silent is the use before the first request. The client is in a handshake, or has not logged
	// in, or has sent no complete request yet.
	Silent Use = iota
	// Idle is the use between two requests, or while a request arrives and the owner does not work
	// on it yet.
	Idle
	// Sending is the use while the owner sends something. If the client has not read all of it
	// after the time staleAfter, the connection may be evicted before idle ones.
	Sending
	// Held is the use while the connection must not be evicted, for example because the owner works
	// on a request.
	Held
	// evicted is the use of a connection that was closed to admit a newer one. It is also the use
	// of a connection whose reads and writes fail because of a Shutdown. In both cases,
	// the owner must close the connection.
	evicted
)

// staleAfter is how long a connection may be silent, or leave an answer unread, before it is
// evicted in preference to idle connections.
const staleAfter = time.Second

// searchSize is how many connections are examined to find the best one to evict. If none of these
// can be evicted, the search continues, up to maxSearch connections, until it finds one.
const searchSize, maxSearch = 64, 1024

// searchPause is the pause after a search that has found no connection to evict. Without the pause,
// while no connection can be evicted, each new connection would cause a long search.
const searchPause = 10 * time.Millisecond

// warnInterval is the shortest time between two warnings that Accept logs about transient errors.
const warnInterval = time.Minute

// Config configures a [Guard]. Max is required.
type Config struct {
	// Max is the maximum number of open connections. At the maximum, one connection is evicted for
	// each new one.
	Max int
	// Spare is how many connections beyond Max are accepted if no connection can be evicted. For a
	// connection beyond Max, [Conn.Crowded] returns true, so that the owner can tell the client the
	// reason. Connections beyond Max plus Spare are closed at once.
	Spare int
	// SendBuffer limits how many unread bytes the kernel buffers for a client. If zero, only the
	// kernel's own limit applies, which is up to 4 MiB per connection.
	SendBuffer int
	// Full reports whether a newer connection would be refused anyway, for example during an
	// overload (see [Conn.Overloaded]). While it returns true, no connection is evicted to admit a
	// newer one. It is called for each connection. If nil, eviction is always allowed.
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
	// noneUntil is set after a search that found no connection to evict. No other search is made
	// before this time, in Unix nanoseconds.
	noneUntil int64
	listeners []net.Listener // of Serve

	ending  atomic.Bool    // no more connections are admitted; set while mu is held
	serving sync.WaitGroup // calls of Serve, and of the functions that it calls
	streams atomic.Int64   // requests of HTTP/2 beyond the first of their connection
}

// New returns a guard. It limits the connections of each listener that [Guard.Listener] returns.
func New(c Config) *Guard {
	if c.Full == nil {
		c.Full = func() bool { return false }
	}
	if c.Dropped == nil {
		c.Dropped = func() {}
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Guard{c: c, open: make(map[*Conn]struct{}), clients: make(map[netip.Prefix]int)}
}

// Listener returns a listener whose connections the guard limits. Its Accept returns the
// connections of l, each as a [*Conn].
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

// admit adds an accepted connection to those that the guard counts. If there are too many, admit
// tries to evict another one. It returns nil if there is no room for the connection, or if
// [Guard.Shutdown] or [Server.Shutdown] was called.
func (g *Guard) admit(nc net.Conn) *Conn {
	if t, ok := nc.(interface{ SetWriteBuffer(int) error }); ok && g.c.SendBuffer > 0 {
		_ = t.SetWriteBuffer(g.c.SendBuffer) // it fails only if the connection is closed already
	}
	c := &Conn{Conn: nc, guard: g}
	if t, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.peer = Plain(t.AddrPort().Addr())
	}
	c.client = Client(c.peer)
	c.since.Store(time.Now().UnixNano())
	full := g.c.Full()
	c.overloaded.Store(full)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending.Load() {
		return nil
	}
	if len(g.open) >= g.c.Max {
		room := !full && g.evict()
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

// Plain returns an address in a form in which equal addresses compare equal: it has no zone, and
// IPv4 is never written as IPv6.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// Client returns the address prefix that identifies the client at an address: the whole IPv4
// address, or the /64 prefix of an IPv6 address, which is the smallest that one customer gets.
func Client(a netip.Addr) netip.Prefix {
	a = Plain(a)
	p, _ := a.Prefix(min(a.BitLen(), 64))
	return p
}

// evict closes a connection to admit a newer one, and reports whether it found one that may be
// closed. Without eviction, a client that opens Max connections would keep all others out. The
// caller holds mu.
//
// evict examines connections in random order (see searchSize). It prefers them in this order:
//
//  1. silent connections that were accepted at least staleAfter ago, sending connections that began
//     to send at least staleAfter ago, and all silent and sending connections of a client that has
//     more than an eighth of the maximum number of connections;
//  2. idle connections;
//  3. all other silent and sending connections, because these may be about to send a request.
//
// Among connections of the same rank, evict chooses a connection of the client that has the most
// connections.
//
// evict does not wait until the owner closes the connection. The newer connection is admitted at
// once, so the file descriptor must be free even if the owner notices the eviction late.
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

// choose returns the connection to evict at the time now, in Unix nanoseconds, and its use (see
// evict). If there is none, victim is nil. The caller holds mu.
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

// remove removes a connection that the guard counts, if it is one of them. The caller holds mu.
func (g *Guard) remove(c *Conn) {
	if _, ok := g.open[c]; !ok {
		return
	}
	delete(g.open, c)
	if g.clients[c.client]--; g.clients[c.client] == 0 {
		delete(g.clients, c.client)
	}
}

// Serve calls serve for each connection of l, in a goroutine of its own, until [Guard.Shutdown],
// which closes l. Serve then returns an error that wraps [net.ErrClosed]. If accepting a connection
// fails before that, Serve closes l and returns the error. l is a listener from [Guard.Listener],
// or wraps one, as TLS does. Serve may be called for several listeners.
func (g *Guard) Serve(l net.Listener, serve func(net.Conn)) error {
	g.mu.Lock()
	if g.ending.Load() {
		g.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
	g.listeners = append(g.listeners, l)
	g.serving.Add(1)
	g.mu.Unlock()
	defer g.serving.Done()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			g.serving.Go(func() { serve(c) })
		case g.ending.Load():
			return net.ErrClosed
		default:
			return errors.Join(err, l.Close())
		}
	}
}

// Shutdown closes the listeners of [Guard.Serve], and makes pending reads and writes on all silent
// and idle connections fail, so that their owners close them. It then waits until all connections
// are served, and returns the error of closing the listeners. If ctx ends first, Shutdown closes
// all connections, even held ones, and returns the error of ctx.
func (g *Guard) Shutdown(ctx context.Context) error {
	g.wakeAll(Silent, Idle)
	var err error
	for _, l := range g.listeners { // Serve adds no more
		if e := l.Close(); !errors.Is(e, net.ErrClosed) { // it is closed already if Accept failed
			err = errors.Join(err, e)
		}
	}
	served := make(chan struct{})
	go func() {
		g.Wait()
		close(served)
	}()
	select {
	case <-served:
		return err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		_ = c.Conn.Close()
	}
	return ctx.Err()
}

// Wait waits until all connections of [Guard.Serve] are served.
func (g *Guard) Wait() { g.serving.Wait() }

// Ending reports whether [Guard.Shutdown] or [Server.Shutdown] was called.
func (g *Guard) Ending() bool { return g.ending.Load() }

// wakeAll makes pending reads and writes on all connections that have one of the uses fail, so that
// their owners close them. The guard admits no more connections.
func (g *Guard) wakeAll(uses ...Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending.Store(true)
	for c := range g.open {
		for _, u := range uses {
			if c.use.CompareAndSwap(int32(u), int32(evicted)) {
				_ = c.Conn.SetDeadline(past) // the read or write in which the owner waits fails
			}
		}
	}
}

// Conn is a connection that a [Guard] counts and may evict. Its owner, the server that accepted it,
// must close it; closing it twice is harmless.
type Conn struct {
	net.Conn
	guard   *Guard
	peer    netip.Addr
	client  netip.Prefix
	crowded bool // used by the owner's goroutine only

	overloaded atomic.Bool // accepted while Config.Full returned true; cleared when Overloaded finds that it does not

	use   atomic.Int32
	since atomic.Int64 // when it was accepted or last began to send, in Unix nanoseconds
	http  inHTTP
}

// Under returns the guarded connection that c is or wraps, for example with TLS between. If there
// is none, it returns nil.
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

// NetConn returns the connection that the Conn wraps.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Peer returns the address at the other end, without a zone and never as IPv4 in IPv6. If there is
// no such address, it returns the zero Addr.
func (c *Conn) Peer() netip.Addr { return c.peer }

// Crowded reports whether too many connections are open and this one was accepted beyond
// [Config].Max. If so, Crowded first tries to evict another connection, unless Config.Full returns
// true. If the eviction succeeds, Crowded returns false. Only the owner's goroutine may call it.
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

// Overloaded reports whether the connection was accepted while [Config].Full returned true, and
// Full still returns true. If not, no later call returns true either.
func (c *Conn) Overloaded() bool {
	if c.overloaded.Load() && !c.guard.c.Full() {
		c.overloaded.Store(false)
	}
	return c.overloaded.Load()
}

// Become changes the use of the connection to u and returns true. If the connection was evicted,
// Become changes nothing and returns false; the owner must then close the connection. Only one
// goroutine at a time may change the use.
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

// Send changes the use to [Sending]. Its result is that of Become: false if the connection was
// evicted. now is the time at which sending begins.
func (c *Conn) Send(now time.Time) bool {
	c.since.Store(now.UnixNano())
	return c.Become(Sending)
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// SetDeadline implements [net.Conn]. After an eviction, all deadlines of the connection stay in the
// past, even if SetDeadline, SetReadDeadline or SetWriteDeadline is called.
func (c *Conn) SetDeadline(t time.Time) error { return c.unlessEvicted(c.Conn.SetDeadline, t) }

// SetReadDeadline implements [net.Conn]; see SetDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.unlessEvicted(c.Conn.SetReadDeadline, t) }

// SetWriteDeadline implements [net.Conn]; see SetDeadline.
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

// CloseWrite closes the sending side of the connection, as [net.TCPConn.CloseWrite] does. If the
// connection cannot close only this side, it returns [errors.ErrUnsupported].
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection, so that the guard can admit another one.
func (c *Conn) Close() error {
	c.guard.mu.Lock()
	c.guard.remove(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

type listener struct {
	net.Listener
	guard  *Guard
	once   sync.Once
	err    error // the result of closing
	closed chan struct{}
	warned time.Time // the time of the last warning; used by the goroutine in Accept only
}

// Accept returns the next connection for which there is room; it closes connections without room.
// After a transient error it tries again, after a pause that grows from 5 ms to 1 s. If the process
// has no more file descriptors, it also evicts a connection. It returns any other error, and
// [net.ErrClosed] if the listener was closed during a backoff.
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

// isTransient reports whether an error of Accept is transient. On Linux, Accept also returns
// network errors of the connection to be accepted, which are transient, too (see accept(2)).
func isTransient(err error) bool {
	var temporary interface{ Temporary() bool }
	if errors.As(err, &temporary) && temporary.Temporary() {
		return true
	}
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
