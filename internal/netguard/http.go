package netguard

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// inHTTP is the state of a connection that is served by net/http.
type inHTTP struct {
	// mu guards all fields below. The connection's [Use] is computed from these fields under mu, so
	// that it always agrees with them.
	mu      sync.Mutex
	holds   int  // requests between Hold and Release: HTTP/2 has many at a time
	answer  bool // the connection is held until the answer in progress was written
	active  bool // net/http is serving a request, from its head to the end of its answer
	streams int  // requests of HTTP/2 whose answer was not sent yet
}

// maxStreams is the maximum number of requests that an HTTP/2 connection may have at a time. RFC
// 9113 recommends at least 100.
const maxStreams = 100

// Attach makes a server of net/http report the states of its connections to the guard. The server
// must accept its connections from [Guard.Listener]. Attach replaces the server's ConnState. The
// server's ConnContext is still called.
//
// Attach also limits the requests of HTTP/2, because one connection has up to maxStreams of them at
// a time. The first of the concurrent requests of a connection is always served. Of all other
// requests, at most [Config.Max] may be in progress on all connections together; a request beyond
// this limit is reset without an answer. A request of HTTP/2 is in progress until its answer is
// sent (see [Send]).
func (g *Guard) Attach(s *http.Server) {
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := ConnOf(r.Context()); r.ProtoMajor == 2 && c != nil {
			if !c.beginStream() {
				panic(http.ErrAbortHandler) // resets the stream
			}
			defer c.endStream()
			handler.ServeHTTP(w, r)
			Send(w, nil)
			return
		}
		handler.ServeHTTP(w, r)
	})
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

// beginStream counts a request of HTTP/2 as in progress on the connection and returns true. There
// is a limit for requests that begin while another request is in progress on their connection:
// [Config.Max] on all connections together. Beyond this limit, beginStream counts nothing and
// returns false.
func (c *Conn) beginStream() bool {
	c.http.mu.Lock()
	defer c.http.mu.Unlock()
	if c.http.streams > 0 {
		if c.guard.streams.Add(1) > int64(c.guard.c.Max) {
			c.guard.streams.Add(-1)
			return false
		}
	}
	c.http.streams++
	return true
}

// endStream stops counting a request for which beginStream returned true.
func (c *Conn) endStream() {
	c.http.mu.Lock()
	defer c.http.mu.Unlock()
	if c.http.streams--; c.http.streams > 0 {
		c.guard.streams.Add(-1)
	}
}

// sendWithin is how long the client of [Send] may take to receive the rest of an answer.
const sendWithin = 10 * time.Second

// Send writes the rest of an answer to w, and returns when the whole answer was passed to the
// kernel. If the client does not read fast enough for this within 10 s, Send returns, and the
// answer stays incomplete.
func Send(w http.ResponseWriter, rest []byte) {
	to := http.NewResponseController(w)
	// Errors mean that the client has gone.
	_ = to.SetWriteDeadline(time.Now().Add(sendWithin))
	_, _ = w.Write(rest)
	_ = to.Flush()
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

// settle sets the connection's [Use] to Held if a request is between [Hold] and [Release], or if
// [HoldUntilAnswered] was called and the answer is not yet written. Otherwise settle changes Held
// to Idle, and leaves every other Use as it is. The caller holds http.mu.
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
func Hold(request context.Context) { change(request, func(h *inHTTP) { h.holds++ }) }

// Release ends a [Hold].
func Release(request context.Context) { change(request, func(h *inHTTP) { h.holds-- }) }

// HoldUntilAnswered prevents the eviction of a request's connection until its answer has been
// written. If the client has gone already, it does nothing.
func HoldUntilAnswered(request context.Context) {
	change(request, func(h *inHTTP) { h.answer = h.answer || h.active }) // not active if the client has gone
}

// change calls f with the state of a request's connection, and then updates the connection's [Use].
func change(request context.Context, f func(*inHTTP)) {
	if c := ConnOf(request); c != nil {
		c.http.mu.Lock()
		defer c.http.mu.Unlock()
		f(&c.http)
		c.settle()
	}
}
