// Package http1 is a server of HTTP/1.1 for GET and HEAD without bodies, and nothing else of HTTP. It
// runs one goroutine per connection (conn.go), which reads heads (request.go, head.go), passes them
// to a [Handler], and writes the answers (response.go). Requests are parsed strictly: a request that
// could be understood in two ways is refused, and its connection ends. Between a complete head and
// its answer, the server allocates nothing. It must never log a part of a request.
package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"example.org/carstate/internal/listen"
)

// Handler answers requests, one after the other. A response is the handler's own, and is valid until
// its next call.
type Handler interface {
	// Answer answers a request that is valid HTTP. now is the time at which its answer begins.
	Answer(r *Request, now time.Time) *Response
	// Refuse answers a request that does not reach Answer. The connection ends after it.
	Refuse(f Fault, now time.Time) *Response
	// Done is called after each answer, before it is sent. took is the time that Answer took.
	Done(r *Request, start time.Time, took time.Duration)
}

// Config configures a [Server]. NewHandler and Listen are required.
type Config struct {
	// NewHandler returns one more handler. A connection has a handler only while it has requests in
	// progress.
	NewHandler func() Handler
	Listen     listen.Config // Log is required

	// HeadTimeout limits three times: how long a request head may take to arrive, how long a TLS
	// handshake may take, and how long a new connection may stay silent. If zero, it is 5 s.
	HeadTimeout time.Duration
	// WriteTimeout is how long an answer may take to be written. If zero, it is 5 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request. If zero, it is 60 s.
	IdleTimeout time.Duration

	TLS *tls.Config      // if nil, plain HTTP is served
	Now func() time.Time // if nil, time.Now
}

// Server serves HTTP. Make one with [New].
type Server struct {
	Guard     *listen.Guard
	config    Config    // with defaults
	otherTime bool      // config.Now is not time.Now, so deadlines cannot be computed from it
	exchanges sync.Pool // of *exchange
}

// New returns a server. It opens no listener and starts no goroutine.
func New(c Config) *Server {
	s := &Server{otherTime: c.Now != nil, Guard: listen.New(c.Listen)}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = []string{"http/1.1"}
	}
	c.HeadTimeout = cmp.Or(c.HeadTimeout, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	s.config = c
	s.exchanges.New = func() any { return &exchange{handler: c.NewHandler()} }
	return s
}

// Serve answers the connections of ln until [Server.Shutdown] is called, which closes ln, and then
// returns an error that wraps [net.ErrClosed]. If accepting a connection fails before that, Serve
// closes ln and returns the error.
func (s *Server) Serve(ln net.Listener) error {
	return s.Guard.Serve(s.Guard.Listener(ln), func(c net.Conn) { s.serveConn(c.(*listen.Conn)) })
}

// Shutdown stops accepting connections, lets requests in progress finish, and closes each
// connection when it is idle. If ctx ends before all connections are closed, Shutdown closes the
// remaining ones and returns the error of ctx. Otherwise it returns the error of closing the
// listener, or nil.
func (s *Server) Shutdown(ctx context.Context) error { return s.Guard.Shutdown(ctx) }
