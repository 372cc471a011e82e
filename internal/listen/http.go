package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Server is a server of net/http whose connections a guard limits.
type Server struct {
	HTTP  *http.Server
	Guard *Guard
}

// NewServer replaces ConnState, ConnContext and Protocols of s. Only HTTP/1 is spoken,
// also with TLS, so a connection has one request at a time, and its handler's goroutine is the
// owner.
func NewServer(s *http.Server, c Config) *Server {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		// Active: a head has arrived. Idle: its answer was written.
		if state == http.StateActive || state == http.StateIdle {
			Under(nc).Become(Idle)
		}
	}
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, Under(nc))
	}
	return &Server{s, New(c)}
}

// Serve serves until [Server.Shutdown], closes l, and returns [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	l = s.Guard.Listener(l)
	if s.HTTP.TLSConfig != nil {
		return s.HTTP.ServeTLS(l, "", "")
	}
	return s.HTTP.Serve(l)
}

// Shutdown waits for the requests in progress. If ctx ends first, it closes their connections and
// returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	// The Shutdown of net/http waits up to five seconds for the first request of a silent
	// connection.
	s.Guard.endWaiting(Silent)
	if err := s.HTTP.Shutdown(ctx); err != nil {
		return errors.Join(err, s.HTTP.Close())
	}
	return nil
}

type connKey struct{}

// ConnOf returns the connection of a request to a [Server].
func ConnOf(request context.Context) *Conn { return request.Value(connKey{}).(*Conn) }

// Hold prevents the eviction of a request's connection until the answer is written.
func Hold(request context.Context) { ConnOf(request).Become(Held) }

// Send writes the rest of an answer, and returns when the kernel has it, or after 10 s.
func Send(w http.ResponseWriter, rest []byte) {
	to := http.NewResponseController(w)
	// Errors mean that the client has gone.
	_ = to.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = w.Write(rest)
	_ = to.Flush()
}
