package netguard

import (
	"context"
	"errors"
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
	holds   int    // requests between Hold and Release: HTTP/2 has many at a time
	free    func() // called when holds becomes 0
	answer  bool   // the connection is held until the answer in progress was written
	active  bool   // net/http is serving a request, from its head to the end of its answer
	streams int    // requests of HTTP/2 whose answer was not sent yet
}

// maxStreams is the maximum number of requests that an HTTP/2 connection may have at a time. RFC
// 9113 recommends at least 100.
const maxStreams = 100

// Server is a server of net/http whose connections a guard limits. Make one with [NewServer].
type Server struct {
	HTTP  *http.Server
	Guard *Guard
	tls   bool
}

// NewServer returns a server that serves nothing until [Server.Serve] is called. It replaces the
// handler, the ConnState and the ConnContext of s, and copies the TLS configuration.
//
// The server also limits the requests of HTTP/2, because one connection has up to maxStreams of
// them at a time. The first of the concurrent requests of a connection is always served. Of all
// other requests, at most [Config.Max] may be in progress on all connections together; a request
// beyond this limit is reset without an answer. A request of HTTP/2 is in progress until its answer
// is sent (see [Send]).
func NewServer(s *http.Server, c Config) *Server {
	g := New(c)
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
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		if c := Under(nc); c != nil {
			c.http.mu.Lock()
			defer c.http.mu.Unlock()
			c.applyState(state)
		}
	}
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, Under(nc))
	}
	s.TLSConfig = s.TLSConfig.Clone() // net/http changes it
	return &Server{s, g, s.TLSConfig != nil}
}

// Serve serves the connections of l until [Server.Shutdown] is called, with TLS if the server has a
// TLS configuration. It closes l, and always returns an error: after Shutdown,
// [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	l = s.Guard.Listener(l)
	if s.tls {
		return s.HTTP.ServeTLS(l, "", "")
	}
	return s.HTTP.Serve(l)
}

// Shutdown stops listening and waits for the requests in progress. If ctx ends first, it closes
// their connections and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	// The Shutdown of net/http closes idle connections by itself, but waits up to five seconds for
	// the first request on a silent connection.
	s.Guard.wakeAll(Silent)
	err := s.HTTP.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, s.HTTP.Close())
	}
	return nil
}

// connKey is the key of a request's connection in the request's context.
type connKey struct{}

// ConnOf returns the connection on which a request arrived, given the context of the request. If the
// request is not one of a [Server], it returns nil.
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

// Hold prevents the eviction of a request's connection until [Release], and returns true. If the
// connection has no other such request, Hold first calls reserve, which reserves what a held
// connection needs. If reserve returns nil, Hold changes nothing and returns false. Otherwise the
// function that reserve returned is called when the last of such requests is released. The request
// must be one of a [Server].
func Hold(request context.Context, reserve func() (free func())) bool {
	held := true
	change(request, func(h *inHTTP) {
		if h.holds == 0 {
			h.free = reserve()
		}
		if held = h.free != nil; held {
			h.holds++
		}
	})
	return held
}

// Release ends a [Hold] that returned true.
func Release(request context.Context) {
	change(request, func(h *inHTTP) {
		if h.holds--; h.holds == 0 {
			h.free()
		}
	})
}

// HoldUntilAnswered prevents the eviction of a request's connection until its answer has been
// written. If the client has gone already, or the request is not one of a [Server], it does nothing.
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
