package netguard

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// inHTTP is what a guard knows of a connection of a server of net/http.
type inHTTP struct {
	mu     sync.Mutex // guards what follows
	holds  int        // requests that are worked on: HTTP/2 has many at a time
	answer bool       // the answer under way must arrive
	active bool       // net/http has a request of it, up to the end of the answer
}

// Attach makes a server of net/http say what becomes of its connections, which come from
// [Guard.Listener]. The server's own ConnContext is called as well.
func (g *Guard) Attach(s *http.Server) {
	next := s.ConnContext
	if next == nil {
		next = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
	}
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		if c := Under(nc); c != nil {
			c.http.mu.Lock()
			defer c.http.mu.Unlock()
			c.become(state)
		}
	}
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(next(ctx, nc), connKey{}, Under(nc))
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

// ConnOf returns the connection of a request; nil if no guard is attached to its server.
func ConnOf(request context.Context) *Conn {
	c, _ := request.Value(connKey{}).(*Conn)
	return c
}

// become notes a state that net/http says. The caller holds http.mu.
func (c *Conn) become(state http.ConnState) {
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

// settle changes the use to what is known of the requests. The caller holds http.mu.
func (c *Conn) settle() {
	switch h := &c.http; {
	case h.holds > 0 || h.answer:
		c.Become(Held)
	case Use(c.use.Load()) == Held:
		c.Become(Idle)
	}
}

// Hold keeps the connection of a request from being evicted until [Release].
func Hold(request context.Context) {
	if c := ConnOf(request); c != nil {
		c.http.mu.Lock()
		defer c.http.mu.Unlock()
		c.http.holds++
		c.settle()
	}
}

// Release ends what [Hold] began. If answered is set, the connection is still held until
// the answer has been written.
func Release(request context.Context, answered bool) {
	if c := ConnOf(request); c != nil {
		c.http.mu.Lock()
		defer c.http.mu.Unlock()
		c.http.holds--
		c.http.answer = c.http.answer || answered && c.http.active // not if the client is gone
		c.settle()
	}
}

// HoldUntilAnswered keeps the connection of a request from being evicted until its answer
// has been written.
func HoldUntilAnswered(request context.Context) {
	Hold(request)
	Release(request, true)
}
