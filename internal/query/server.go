package query

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/listen"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a [Server]. The fields up to Registry are required. Every other field may have
// its zero value.
type Config struct {
	Tokens *access.Tokens
	Fleet  *fleet.Table
	// Ready returns nil if the node can answer queries at the time now, and otherwise the reason
	// why it cannot. It is called for every query, after the query has arrived, and must not block
	// or allocate. Its error is not shown to clients.
	Ready    func(now time.Time) error
	Log      *slog.Logger
	Registry prometheus.Registerer

	// MaxAge is the maximum age of a verdict. If the verdict is older, the answer is that there is
	// no recent verdict. If MaxAge is zero or less, verdicts of any age are answered.
	MaxAge time.Duration
	// NoDocs disables the public documentation, so that its paths get 404.
	NoDocs bool
	// TrustedProxies are the addresses of the proxies in front of the server. If a request arrives
	// from such a proxy, the client's address is read from X-Forwarded-For.
	TrustedProxies []netip.Prefix
	// AccessLog gets one line per request. If nil, no access log is written.
	AccessLog *AccessLog
	// Limit sheds load. A connection that is accepted during an overload that lasts until its first
	// request gets 503 and is closed. If nil, no load is shed.
	Limit *listen.Limit
	// MaxConnections limits the open connections. At the limit, a connection that waits for a
	// request or does not read its answers is closed to admit a newer one (see package listen). If no
	// connection can be closed, the newer one gets 503 to its first request and is then closed. At
	// most SpareConnections connections beyond the limit get that answer; further connections are
	// closed without an answer. A connection takes about 10 KiB of memory. If zero, the limit is
	// 16384.
	MaxConnections int
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

// SpareConnections is how many connections beyond MaxConnections still get an answer, which says
// that there are too many connections.
const SpareConnections = 256

// Server answers queries. Make one with [New].
type Server struct {
	config    Config // with defaults
	otherTime bool   // config.Now is not time.Now, so deadlines cannot be computed from it
	answerer  answerer
	metrics   *metrics
	exchanges sync.Pool // of *exchange
	guard     *listen.Guard
}

// sendBuffer is the maximum number of bytes of unread answers that the kernel buffers for one
// connection.
const sendBuffer = 64 << 10

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = []string{"http/1.1"}
	}
	c.MaxConnections = cmp.Or(c.MaxConnections, 16384)
	c.HeadTimeout = cmp.Or(c.HeadTimeout, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	return c
}

// New returns a server. It opens no listener and starts no goroutine.
func New(c Config) *Server {
	s := &Server{config: c.withDefaults(), otherTime: c.Now != nil, metrics: newMetrics(c.Registry)}
	s.answerer = answerer{Config: s.config}
	if !c.NoDocs {
		s.answerer.docs = newDocuments(c.MaxAge)
	}
	s.guard = listen.New(listen.Config{
		Max: s.config.MaxConnections, Spare: SpareConnections, SendBuffer: sendBuffer,
		Limit: c.Limit, Dropped: s.metrics.dropped.Inc, Log: s.config.Log,
	})
	s.exchanges.New = func() any { return new(exchange) }
	return s
}

// Serve answers the connections of ln until [Server.Shutdown] is called, which closes ln, and then
// returns an error that wraps [net.ErrClosed]. If accepting a connection fails before that, Serve
// closes ln and returns the error.
func (s *Server) Serve(ln net.Listener) error {
	return s.guard.Serve(s.guard.Listener(ln), func(c net.Conn) { s.serveConn(c.(*listen.Conn)) })
}

// Shutdown stops accepting connections, lets requests in progress finish, and closes each
// connection when it is idle. If ctx ends before all connections are closed, Shutdown closes the
// remaining ones and returns the error of ctx. Otherwise it returns the error of closing the
// listener, or nil.
func (s *Server) Shutdown(ctx context.Context) error { return s.guard.Shutdown(ctx) }
