package netguard

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// inHTTP is the state of a connection that is served by net/http.
type inHTTP struct {
	// mu guards all fields below. The connection's [Use] is computed from these fields under mu, so
	// that it always agrees with them.
	mu     sync.Mutex
	holds  int  // requests between Hold and Release: HTTP/2 has many at a time
	answer bool // the connection is held until the answer in progress was written
	active bool // net/http has a request, from its head to the end of the answer
}

// Attach makes a server of net/http report the states of its connections to the guard. The server
// must accept its connections from [Guard.Listener]. Attach replaces the server's ConnState. The
// server's ConnContext is still called.
func (g *Guard) Attach(s *http.Server) {
	next := s.ConnContext
	if next == nil {
		next = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
	}
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		if c := Under(nc); c != nil {
			c.http.mu.Lock()
			defer c.http.mu.Unlock()
			c.applyState(state)
		}
	}
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(next(ctx, nc), connKey{}, Under(nc))
	}
}

// connKey is the key of a request's connection in the request's context.
type connKey struct{}

// ConnOf returns the connection on which a request arrived, given the context of the request. If no
// guard is attached to the server, it returns nil.
func ConnOf(request context.Context) *Conn {
	c, _ := request.Value(connKey{}).(*Conn)
	return c
}

// applyState updates the connection's [Use] after net/http has reported the state of the
// connection. The caller holds http.mu.
func (c *Conn) applyState(state http.ConnState) {
	h := &c.http
	switch state {
	case http.StateActive: // the head of a request has arrived
		h.active = true
		c.use.CompareAndSwap(int32(Silent), int32(Idle))
	case http.StateIdle:
		h.active, h.answer = false, false
	}
	c.settle()
}

// settle sets the connection's [Use] to Held if a request holds the connection or its answer is
// still being written. Otherwise it changes Held to Idle, and leaves every other Use as it is. The
// caller holds http.mu.
func (c *Conn) settle() {
	switch h := &c.http; {
	case h.holds > 0 || h.answer:
		c.Become(Held)
	case Use(c.use.Load()) == Held:
		c.Become(Idle)
	}
}

// Hold prevents the eviction of a request's connection until [Release]. If no guard is attached to
// the server, Hold, Release and [HoldUntilAnswered] do nothing.
func Hold(request context.Context) {
	if c := ConnOf(request); c != nil {
		c.http.mu.Lock()
		defer c.http.mu.Unlock()
		c.http.holds++
		c.settle()
	}
}

// Release ends a [Hold]. If answered is set, the connection remains held until the answer has been
// written.
func Release(request context.Context, answered bool) {
	if c := ConnOf(request); c != nil {
		c.http.mu.Lock()
		defer c.http.mu.Unlock()
		c.http.holds--
		c.http.answer = c.http.answer || answered && c.http.active // not active if the client has gone
		c.settle()
	}
}

// HoldUntilAnswered prevents the eviction of a request's connection until its answer has been
// written.
func HoldUntilAnswered(request context.Context) {
	Hold(request)
	Release(request, true)
}
