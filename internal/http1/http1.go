// Package http1 is a server of HTTP/1.1 for GET and HEAD without bodies. A request that could be
// understood in two ways is refused, and its connection ends. Between a complete head and its
// answer, the server allocates nothing. It must never log a part of a request.
package http1

import (
	"cmp"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"example.org/carstate/internal/listen"
)

// Handler answers a request or its fault, one after the other. A response is valid until the next
// call. After a fault, r may be incomplete.
type Handler func(r *Request, f Fault, now time.Time) *Response

type Config struct {
	// A connection has a handler only while requests are in progress.
	NewHandler func() Handler
	Listen     listen.Config // Log is required

	// HeadTimeout limits the arrival of a head, the TLS handshake, and the silence of a new
	// connection. If zero, it is 5 s.
	HeadTimeout time.Duration
	// of sending; if zero, 5 s
	WriteTimeout time.Duration
	// between requests; if zero, 60 s
	IdleTimeout time.Duration

	TLS *tls.Config // if nil, plain HTTP
}

type Server struct {
	*listen.Guard
	config    Config
	exchanges sync.Pool // of *exchange
}

// New opens no listener and starts no goroutine.
func New(c Config) *Server {
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = []string{"http/1.1"}
	}
	c.HeadTimeout = cmp.Or(c.HeadTimeout, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	s := &Server{Guard: listen.New(c.Listen), config: c}
	s.exchanges.New = func() any { return &exchange{answer: c.NewHandler()} }
	return s
}

// Serve closes ln. After [listen.Guard.Shutdown], its error wraps [net.ErrClosed].
func (s *Server) Serve(ln net.Listener) error {
	return s.Guard.Serve(s.Guard.Listener(ln), func(c net.Conn) { s.serveConn(c.(*listen.Conn)) })
}
