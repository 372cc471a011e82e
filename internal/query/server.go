package query

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/netguard"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a [Server] needs. Tokens and Fleet are required; the zero value
// of everything else works.
type Config struct {
	Tokens *access.Tokens
	Fleet  *fleet.Table
	// MaxAge is how old a verdict may be and still answer; zero or less: any age.
	MaxAge time.Duration
	// Ready says why no query of a moment can be answered; nil, or returning
	// nil, means ready. It is called for every query, once that has arrived,
	// and must not block or allocate. Its error is not shown to callers.
	Ready func(now time.Time) error
	// Overloaded reports that more is asked than is answered; nil: it never is.
	// Where it still does at the first request of a connection that came then,
	// the request gets 503 and the connection is closed, while those that were
	// open go on. It is called for every connection and must answer at once.
	Overloaded func() bool
	// Excess reports that a connection, as its listener handed it out, is one too
	// many for what can be done: its next answer ends it. Nil: none is. It is called
	// for every request and must take no lock.
	Excess func(net.Conn) bool
	// NoDocs turns the public documentation off: its paths get 404.
	NoDocs bool
	// TrustedProxies are the addresses of the proxies in front. Of a request
	// that comes from one, X-Forwarded-For says who sent it.
	TrustedProxies []netip.Prefix
	// AccessLog gets a line of every request; nil: there is none.
	AccessLog *AccessLog
	// MaxInFlight is how many requests may be in progress at once, from the
	// parsed head to the finished answer; more get 503. Zero: 4096.
	MaxInFlight int
	// MaxConnections is how many connections may be open at once. For a newer
	// one, one is closed that waits for a request or does not read its answers
	// (see netguard). If none is found, the newer gets 503 to its first request
	// and is closed; far beyond, it is closed without an answer. A connection
	// holds about 10 KiB. Zero: 16384.
	MaxConnections int
	// HeadTimeout is how long a request head, and before it a TLS handshake,
	// may take to arrive, and how long a new connection may stay silent.
	// Zero: 5 s.
	HeadTimeout time.Duration
	// WriteTimeout is how long an answer may take to be written. Zero: 5 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request.
	// Zero: 60 s.
	IdleTimeout time.Duration

	TLS      *tls.Config           // nil: plain HTTP
	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // nil: nothing is logged
	Registry prometheus.Registerer // nil: nothing is registered
}

// SpareConnections is how many connections beyond MaxConnections still get an
// answer that says so.
const SpareConnections = 256

// Server answers queries. Make one with [New].
type Server struct {
	answerer  answerer
	metrics   *metrics
	accessLog *AccessLog
	now       func() time.Time
	otherTime bool // now is not time.Now, and no deadline can be told by it
	log       *slog.Logger
	tls       *tls.Config
	exchanges sync.Pool // of *exchange

	headTimeout, writeTimeout, idleTimeout time.Duration

	maxInFlight    int64
	inFlight       atomic.Int64
	maxConnections int
	overloaded     func() bool
	excess         func(net.Conn) bool

	ending        atomic.Bool // Shutdown was called
	conversations sync.WaitGroup

	mu     sync.Mutex // guards served, and that none begins once ending is set
	served []served
}

// served is a listener with the guard of its connections.
type served struct {
	net.Listener
	*netguard.Guard
}

// sendBuffer is what the kernel keeps of answers that were not read yet, in bytes.
const sendBuffer = 64 << 10

// ErrStopped is what [Server.Serve] returns after [Server.Shutdown].
var ErrStopped = errors.New("the query server was shut down")

// New makes a server. It opens nothing and starts nothing.
func New(c Config) *Server {
	s := &Server{
		answerer: answerer{
			tokens:  c.Tokens,
			fleet:   c.Fleet,
			maxAge:  c.MaxAge,
			ready:   c.Ready,
			ids:     newRequestIDs(),
			trusted: c.TrustedProxies,
			refused: newRefusals(),
		},
		metrics:        newMetrics(c.Registry),
		accessLog:      c.AccessLog,
		now:            c.Now,
		otherTime:      c.Now != nil,
		log:            c.Log,
		maxInFlight:    int64(orDefault(c.MaxInFlight, 4096)),
		maxConnections: orDefault(c.MaxConnections, 16384),
		overloaded:     c.Overloaded,
		excess:         c.Excess,
		headTimeout:    orDefault(c.HeadTimeout, 5*time.Second),
		writeTimeout:   orDefault(c.WriteTimeout, 5*time.Second),
		idleTimeout:    orDefault(c.IdleTimeout, time.Minute),
	}
	if !c.NoDocs {
		s.answerer.docs = newDocuments(c.MaxAge)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.overloaded == nil {
		s.overloaded = func() bool { return false }
	}
	if s.excess == nil {
		s.excess = func(net.Conn) bool { return false }
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if c.TLS != nil {
		s.tls = c.TLS.Clone()
		s.tls.NextProtos = []string{"http/1.1"}
	}
	s.exchanges.New = func() any { return new(exchange) }
	return s
}

func orDefault[T int | time.Duration](v, d T) T {
	if v > 0 {
		return v
	}
	return d
}

// Serve answers the connections of ln until [Server.Shutdown], and returns nil
// then. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	g := netguard.New(netguard.Config{
		Max: s.maxConnections, Spare: SpareConnections, SendBuffer: sendBuffer,
		Full: s.overloaded, Dropped: s.metrics.dropped.Inc, Log: s.log,
	})
	l := served{g.Listener(ln), g}
	s.mu.Lock()
	if s.ending.Load() {
		s.mu.Unlock()
		return errors.Join(ErrStopped, l.Close())
	}
	s.served = append(s.served, l)
	s.conversations.Add(1)
	s.mu.Unlock()
	defer s.conversations.Done()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			busy := s.overloaded()
			s.conversations.Go(func() { s.converse(c.(*netguard.Conn), busy) })
		case s.ending.Load():
			return nil
		default:
			return errors.Join(fmt.Errorf("the query listener failed: %w", err), l.Close())
		}
	}
}

// Shutdown stops accepting, lets requests in progress finish, and closes
// connections once they are idle. Connections that are left when ctx ends are
// cut, and the error of ctx is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.ending.Store(true)
	all := s.served
	s.mu.Unlock()
	var closed error
	for _, l := range all {
		closed = errors.Join(closed, l.Close())
		l.End()
	}
	ended := make(chan struct{})
	go func() {
		s.conversations.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return closed
	case <-ctx.Done():
	}
	for _, l := range all {
		l.Cut()
	}
	return ctx.Err()
}
