// Package listen is the door of every listener. It counts connections, evicts (closes) one for a
// newer one, sheds load during an overload, and ends all with the service. It must never evict a
// connection that its owner holds ([Held]), and never looks at a request.
package listen

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
)

// A connection that is silent, or leaves an answer unread, for longer is evicted before idle ones.
const staleAfter = time.Second

// Of more than maxSearch connections, a search examines a sample of searchSize, and up to maxSearch
// until it can evict one. After a search in vain, the next waits for searchPause.
const searchSize, maxSearch, searchPause = 64, 1024, 10 * time.Millisecond

type Config struct {
	// For each connection beyond Max, another is evicted.
	Max int
	// Spare connections beyond Max are accepted if none can be evicted, so that their owner can
	// tell the client ([Conn.Crowded]). Others are closed at once.
	Spare int
	// If zero, the kernel's limit for unread bytes applies, up to 4 MiB.
	SendBuffer int
	// If more connections are open than Limit allows, new ones are accepted slowly and are
	// [Conn.Overloaded], and the newest of the older ones are [Conn.Excess].
	Limit   *Limit
	Dropped func() // called for each connection closed because there are too many
	Log     *slog.Logger
}

type Guard struct {
	c     Config
	began time.Time

	mu        sync.Mutex           // guards the fields below
	conns     []*Conn              // in the order of acceptance; nil if it has ended
	open      int                  // connections
	clients   map[netip.Prefix]int // open connections of each client
	noneUntil time.Duration        // since began; until then, evict does not search
	listeners []*listener
	backlog   int // the last that was set

	ending  atomic.Bool    // set while mu is held
	serving sync.WaitGroup // calls of Serve, and of its functions
}

func New(c Config) *Guard {
	if c.Limit == nil {
		c.Limit = NewLimit(new(Probe), Queries) // a probe that does not run measures no delay
	}
	if c.Dropped == nil {
		c.Dropped = func() {}
	}
	g := &Guard{c: c, began: time.Now(), clients: make(map[netip.Prefix]int), backlog: longBacklog}
	c.Limit.probe.follow(func(now time.Time, d delays) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.adapt(now, d)
	})
	return g
}

// The listener accepts the connections of l, each as a [*Conn].
func (g *Guard) Listener(l net.Listener) net.Listener {
	guarded := &listener{Listener: l, guard: g}
	guarded.open, guarded.end = context.WithCancel(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listeners = append(g.listeners, guarded)
	return guarded
}

// Serve calls serve for each connection of l, in its own goroutine, and closes l. After
// [Guard.Shutdown] it returns [net.ErrClosed]. l is from [Guard.Listener], or wraps one, as TLS
// does.
func (g *Guard) Serve(l net.Listener, serve func(net.Conn)) error {
	g.mu.Lock()
	if g.ending.Load() {
		g.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
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

type listener struct {
	net.Listener
	guard  *Guard
	open   context.Context // until Close
	end    context.CancelFunc
	failed lograte.Warning
}

// Accept pauses during an overload, in favor of requests on open connections. After a transient error
// it tries again, after 5 ms to 1 s; if descriptors are lacking, it evicts a connection.
func (l *listener) Accept() (net.Conn, error) {
	var backoff time.Duration
	for {
		if pause := l.guard.overloadPause(); pause > 0 && periodic.Pause(l.open, pause) != nil {
			return nil, net.ErrClosed
		}
		nc, err := l.Listener.Accept()
		for err == nil && l.guard.isCrowded() && peerClosed(nc) {
			_ = nc.Close()
			nc, err = l.Listener.Accept()
		}
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
		l.failed.Log(l.guard.c.Log, "cannot accept a connection; will retry", "error", err)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.guard.mu.Lock()
			l.guard.evict(false)
			l.guard.mu.Unlock()
		}
		backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
		if periodic.Pause(l.open, backoff) != nil {
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) Close() error {
	l.end()
	return l.Listener.Close()
}

// isTransient also knows errors of the connection to be accepted (accept(2) of Linux).
func isTransient(err error) bool {
	e, ok := errors.AsType[syscall.Errno](err)
	return ok && (e.Temporary() || slices.Contains([]syscall.Errno{
		syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
	}, e))
}

// admit returns nil if there is no room, or if the guard ends.
func (g *Guard) admit(nc net.Conn) *Conn {
	if t, ok := nc.(interface{ SetWriteBuffer(int) error }); ok && g.c.SendBuffer > 0 {
		_ = t.SetWriteBuffer(g.c.SendBuffer) // fails only if nc is closed
	}
	c := &Conn{Conn: nc, guard: g}
	from, _ := nc.RemoteAddr().(*net.TCPAddr)
	c.peer = Plain(from.AddrPort().Addr())
	c.client = Client(c.peer)
	c.since.Store(int64(time.Since(g.began)))
	c.waits.Store(g.c.Limit.probe.ran.Load())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending.Load() {
		return nil
	}
	g.adapt(g.c.Limit.probe.now())
	if most := g.c.Limit.max.Load(); int64(g.open) >= most {
		g.evict(true)
		c.overloaded = int64(g.open) >= most
	}
	if g.open >= g.c.Max {
		c.crowded = c.overloaded || !g.evict(false)
		if c.crowded && g.open >= g.c.Max+g.c.Spare {
			g.c.Dropped()
			return nil
		}
	}
	if len(g.conns) > 2*g.open+searchSize { // most have ended
		g.conns = slices.DeleteFunc(g.conns, func(c *Conn) bool { return c == nil })
		for i, c := range g.conns {
			c.index = i
		}
	}
	c.index = len(g.conns)
	g.conns = append(g.conns, c)
	g.open++
	g.clients[c.client]++
	return c
}

// evict reports whether it closed a connection. It does not wait for the owner, because the newer
// connection needs the descriptor. If overload is true, it closes only one that has had no request
// for Bounds.Idle. The caller holds mu.
func (g *Guard) evict(overload bool) bool {
	now := time.Since(g.began)
	if now < g.noneUntil {
		return false
	}
	for range 3 { // the chosen one may become held at this moment
		victim, use := g.choose(now, overload)
		if victim == nil {
			g.noneUntil = now + searchPause
			return false
		}
		if victim.end(use) {
			g.c.Dropped()
			return true
		}
	}
	return false
}

// choose prefers, in this order, and among equals a connection of the client with the most:
//
// 1. silent and sending connections, if for staleAfter, or of a client with more than an eighth of
// Config.Max; 2. idle ones; 3. other silent and sending ones, which may be about to send a request.
func (g *Guard) choose(now time.Duration, overload bool) (victim *Conn, use Use) {
	best, most := 3, 0
	ran := g.c.Limit.probe.ran.Load()
	for i := range min(len(g.conns), maxSearch) {
		if len(g.conns) > maxSearch {
			if i >= searchSize && victim != nil {
				break
			}
			i = rand.IntN(len(g.conns))
		}
		c := g.conns[i]
		if c == nil {
			continue
		}
		u, rank, n := Use(c.use.Load()), 3, g.clients[c.client]
		switch {
		case u >= Held:
		case overload:
			if ran-c.waits.Load() >= int64(g.c.Limit.Idle) {
				rank = 0
			}
		case u == Idle:
			rank = 1
		default:
			rank = 2
			if int64(now)-c.since.Load() >= int64(staleAfter) || n > g.c.Max/8 {
				rank = 0
			}
		}
		if rank < best || rank == best && rank < 3 && n > most {
			victim, use, best, most = c, u, rank, n
		}
	}
	return victim, use
}

// Count counts the connections with one of the uses, or all.
func (g *Guard) Count(uses ...Use) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		if c != nil && (len(uses) == 0 || slices.Contains(uses, Use(c.use.Load()))) {
			n++
		}
	}
	return n
}

// Shutdown waits for the connections in use. If ctx ends first, it closes them, too, and returns
// ctx's error.
func (g *Guard) Shutdown(ctx context.Context) (err error) {
	for _, l := range g.endWaiting(Silent, Idle) {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) { // closed already if Accept failed
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
	for _, c := range g.conns {
		if c != nil {
			_ = c.Conn.Close()
		}
	}
	return ctx.Err()
}

func (g *Guard) Wait() { g.serving.Wait() }

// Ending reports whether [Guard.Shutdown] or [Server.Shutdown] was called.
func (g *Guard) Ending() bool { return g.ending.Load() }

// endWaiting ends connections with these uses, admits no more, and returns the listeners.
func (g *Guard) endWaiting(uses ...Use) []*listener {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending.Store(true)
	for _, c := range g.conns {
		for _, u := range uses {
			if c != nil && c.end(u) {
				break
			}
		}
	}
	return slices.Clone(g.listeners)
}
