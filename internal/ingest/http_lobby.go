package ingest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// lobby bounds how many HTTP connections are open. For one too many, another one
// that has no request in work is closed, drawn by lot: whoever opens many mostly
// shuts himself out, and connections that only wait keep nobody else out.
type lobby struct {
	max        int
	overloaded func() bool
	dropped    prometheus.Counter

	mu   sync.Mutex // guards open
	open map[net.Conn]*inLobby
}

// inLobby is one connection.
type inLobby struct {
	active  bool // net/http has a request of it, up to the end of the answer
	working int  // requests whose handlers run: HTTP/2 has many at a time
	// telling: samples were stored and the sender is being told so. Other answers
	// do not count: who has no key could keep them under way for long.
	telling bool
}

func newLobby(in *intake) *lobby {
	l := &lobby{max: in.MaxHTTPConnections, overloaded: in.Overloaded, open: make(map[net.Conn]*inLobby)}
	l.dropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "carstate_ingest_connections_dropped_total",
		Help: "HTTP connections that were closed because there were too many.",
	})
	in.Registry.MustRegister(l.dropped)
	return l
}

// follow is told by net/http what becomes of each connection.
func (l *lobby) follow(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(l.open) >= l.max {
			l.dropped.Inc()
			var victim net.Conn
			if !l.overloaded() { // else the newer one would only be refused
				victim = l.victim()
			}
			if victim == nil {
				cut(c)
				return
			}
			delete(l.open, victim)
			cut(victim)
		}
		boundSending(c)
		l.open[c] = new(inLobby)
	case http.StateActive:
		if k := l.open[c]; k != nil {
			k.active = true
		}
	case http.StateIdle:
		if k := l.open[c]; k != nil {
			k.active, k.telling = false, false
		}
	case http.StateClosed, http.StateHijacked:
		delete(l.open, c)
	}
}

// lobbyLooks is how many connections are looked at to find one that may be closed.
const lobbyLooks = 64

func (l *lobby) victim() net.Conn {
	looks := 0
	for c, k := range l.open { // in random order
		if k.working == 0 && !k.telling {
			return c
		}
		if looks++; looks == lobbyLooks {
			break
		}
	}
	return nil
}

// cut closes a connection without the farewell of TLS, which could wait for its
// reader.
func cut(c net.Conn) { _ = under(c).Close() }

// under is the connection below TLS.
func under(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// sendBuffer is what the kernel keeps of answers that were not read yet. Without a
// bound it is up to 4 MiB a connection.
const sendBuffer = 32 << 10

func boundSending(c net.Conn) {
	if t, ok := under(c).(interface{ SetWriteBuffer(int) error }); ok {
		_ = t.SetWriteBuffer(sendBuffer) // an error says that it is gone
	}
}

type lobbyKey struct{}

// remember lets a request know its connection.
func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, lobbyKey{}, c)
}

// connOf is the connection of a request.
func connOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(lobbyKey{}).(net.Conn)
	return c
}

// begin notes that a request of the connection is in work.
func (l *lobby) begin(ctx context.Context) {
	c := connOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.open[c]; k != nil {
		k.working++
	}
}

// end notes that it is not any more. If samples were stored for it, the sender
// has still to be told.
func (l *lobby) end(ctx context.Context, stored bool) {
	c := connOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.open[c]; k != nil {
		k.working--
		k.telling = k.telling || stored && k.active // not if nobody listens any more
	}
}
