package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/admin/wire"
	"carstate/internal/netguard"
	"carstate/internal/ops"
	"carstate/internal/road"
)

// Config is what a [Server] is made of.
type Config struct {
	// Ops are the operations that the API calls. If nil, only /healthz, /readyz
	// and /metrics are served, and no key opens anything.
	Ops *ops.Operations

	// Roads is what this node knows of the roads; nil: they are not shown.
	Roads *road.Map

	// Node is what operators change of the node itself; nil: nothing.
	Node Node

	// Console is served at every path that is not the API's; nil: nothing is. It
	// is closed when the server shuts down.
	Console Console

	// Hosts are the names under which the listener answers, beside every IP
	// address and localhost.
	Hosts []string

	// Alive and Ready answer /healthz and /readyz, ReadyFor answers
	// /readyz/NAME for one of the node's jobs. An error's text is shown to
	// whoever asks, without login. Nil is always well.
	Alive    func() error
	Ready    func() error
	ReadyFor map[string]func() error
	// FeedAge is how old the copies may be that the node goes by; ok is false
	// while it has none. Nil: /readyz does not say.
	FeedAge func() (age time.Duration, ok bool)
	// Newer are the streams in which a newer version stored what this node cannot read. Nil: none.
	Newer func() []string

	// Started is closed once Tokens, Sources and Operators hold all that is
	// stored. Until then nothing is answered that rests on them: a record would
	// be said not to exist. Nil: they hold it.
	Started <-chan struct{}

	// Gatherer is what /metrics shows; nil: /metrics is not found.
	Gatherer prometheus.Gatherer
	// Registry takes the server's own metrics; nil: they are not kept.
	Registry prometheus.Registerer

	// MaxConnections is how many connections may be open. For a newer one, one is
	// closed on which nobody with a key or a session is being answered; if there is
	// none, the newer one is. Zero: 512, far more than operators, their pages and
	// their scrapers have.
	MaxConnections int

	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: nothing is logged
	TLS     *tls.Config      // nil: plain HTTP
	Version string           // shown as a metric
}

// Node is the node that the listener belongs to.
type Node interface {
	Settings() wire.NodeSettings
	// Change puts into use what is set of its argument.
	Change(wire.NodeSettings)
}

// Console is the operator's pages. It identifies its callers itself.
type Console interface {
	http.Handler
	// Close ends what would otherwise be answered without an end.
	Close()
}

// Limits of the listener.
const (
	// maxBody admits a list of a million vehicles, about 25 bytes each, with
	// room to spare. The list is decoded as it arrives.
	maxBody       = 64 << 20
	maxHead       = 16 << 10
	headTimeout   = 5 * time.Second
	readTimeout   = time.Minute // head and body
	answerTimeout = 2 * time.Minute
	// startPatience is how long a call that comes early waits for the tables.
	startPatience = 2 * time.Second
	idleTimeout   = time.Minute
)

// Server is the admin listener. Make one with [New].
type Server struct {
	cfg     Config
	ops     *ops.Operations
	http    *http.Server
	conns   *netguard.Guard
	metrics *metrics
	wrong   access.Budget // what is left for wrong keys, of all callers together
	quiet   *quietLog     // of what callers without a key cause
}

// New makes a server that does not listen yet.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 512
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, ops: cfg.Ops, metrics: newMetrics(cfg.Registry, cfg.Version), quiet: &quietLog{log: cfg.Log, now: cfg.Now}}
	routes := s.probes()
	if cfg.Ops != nil {
		s.addCalls(routes)
	}
	s.http = &http.Server{
		Handler:                      s.guard(routes),
		ReadHeaderTimeout:            headTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     newServerLog(s.quiet),
	}
	s.conns = netguard.New(netguard.Config{Max: cfg.MaxConnections, Log: cfg.Log})
	s.conns.Attach(s.http)
	if cfg.TLS != nil {
		s.http.TLSConfig = cfg.TLS.Clone()
	}
	if cfg.Console != nil {
		s.http.RegisterOnShutdown(cfg.Console.Close)
	}
	return s
}

// Serve answers on l until [Server.Shutdown], and then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	l = s.conns.Listener(l)
	var err error
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops listening and waits for calls under way. When ctx ends first,
// their connections are closed and the context's error is returned; an
// operation under way is then still finished or failed by the store.
func (s *Server) Shutdown(ctx context.Context) error {
	s.conns.EndSilent()
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}
