package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Server is a server of net/http whose connections a guard limits. Make one with [NewServer].
type Server struct {
	HTTP  *http.Server
	Guard *Guard
}

// NewServer returns a server that serves nothing until [Server.Serve] is called. It replaces the
// ConnState, the ConnContext and the protocols of s, and copies the TLS configuration. It speaks
// only HTTP/1, so a connection has one request at a time and its handler's goroutine is the owner.
func NewServer(s *http.Server, c Config) *Server {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		// Active: the head of a request has arrived. Idle: its answer was written.
		if c := Under(nc); c != nil && (state == http.StateActive || state == http.StateIdle) {
			c.Become(Idle)
		}
	}
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, Under(nc))
	}
	if s.TLSConfig != nil {
		s.TLSConfig = s.TLSConfig.Clone() // net/http changes it
		s.TLSConfig.NextProtos = []string{"http/1.1"}
	}
	return &Server{s, New(c)}
}

// Serve serves the connections of l, with TLS if it is configured, until [Server.Shutdown]. Then it
// closes l, and returns [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	l = s.Guard.Listener(l)
	if s.HTTP.TLSConfig != nil {
		return s.HTTP.ServeTLS(l, "", "")
	}
	return s.HTTP.Serve(l)
}

// Shutdown stops listening and waits for the requests in progress. If ctx ends first, it closes
// their connections and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	// The Shutdown of net/http closes idle connections by itself, but waits up to five seconds for
	// the first request on a silent connection.
	s.Guard.endWaiting(Silent)
	if err := s.HTTP.Shutdown(ctx); err != nil {
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

// Hold prevents the eviction of a request's connection until the answer has been written. If the
// request is not one of a [Server], it does nothing.
func Hold(request context.Context) {
	if c := ConnOf(request); c != nil {
		c.Become(Held)
	}
}

// Send writes the rest of an answer to w, and returns when the kernel has the whole answer, or when
// the client has not read enough for this within 10 s.
func Send(w http.ResponseWriter, rest []byte) {
	to := http.NewResponseController(w)
	// Errors mean that the client has gone.
	_ = to.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = w.Write(rest)
	_ = to.Flush()
}
