package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// maxConnections is far more than operators, their pages and their scrapers have.
// It keeps whoever can reach the listener from taking the descriptors that the
// other listeners need.
const maxConnections = 512

// connections bounds how many are open. For one too many, another one is closed on
// which nobody with a key is being answered, drawn by lot: otherwise whoever opens as
// many as there may be, and asks without an end, would keep out the operator and the
// probes, and a supervisor would end the node. Where none is found, the newer one is.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool // whether somebody with a key is being answered
}

// follow is told by net/http what becomes of each connection.
func (l *connections) follow(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(l.open) >= maxConnections {
			victim := l.waiting()
			if victim == nil {
				cut(c)
				return
			}
			delete(l.open, victim)
			cut(victim)
		}
		l.open[c] = false
	case http.StateIdle:
		if l.open[c] {
			l.open[c] = false
		}
	case http.StateClosed:
		delete(l.open, c)
	}
}

// waiting returns a connection that may be closed, nil if there is none.
func (l *connections) waiting() net.Conn {
	for c, answering := range l.open { // in random order
		if !answering {
			return c
		}
	}
	return nil
}

// cut closes a connection without the farewell of TLS, which could wait for its
// reader.
func cut(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// connectionKey is where a request's context holds its connection.
type connectionKey struct{}

// remember lets a request know its connection.
func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// keepKey is where a request's context holds what keeps its connection open.
type keepKey struct{}

// note lets the connection of a request be kept, by [Known].
func (l *connections) note(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connectionKey{}).(net.Conn)
		keep := func() { l.keep(c) }
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keepKey{}, keep)))
	})
}

// keep marks a connection until it is idle again.
func (l *connections) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[c]; ok {
		l.open[c] = true
	}
}

// Known keeps the connection of a request that somebody with a key made, or with a
// session: it makes no room for others until the request is answered. Without a key, a
// caller could hold all of them with requests whose bodies never come.
func Known(request context.Context) {
	if keep, ok := request.Value(keepKey{}).(func()); ok {
		keep()
	}
}

// serverLog takes what net/http says. A handshake that fails is the caller's
// fault and needs no login: at more than debug, scanners would fill the log.
type serverLog struct{ log *slog.Logger }

func newServerLog(l *slog.Logger) *log.Logger { return log.New(serverLog{l}, "", 0) }

func (s serverLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error ")) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, string(bytes.TrimRight(line, "\n")))
	return len(line), nil
}
