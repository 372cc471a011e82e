package admin

import (
	"cmp"
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/road"
)

// Config holds the settings and dependencies of a [Server]. The fields Node and Console are required
// if Ops is set; Alive, Ready, FeedAge, Newer and Gatherer are always required.
type Config struct {
	// Ops are the operations that the API calls. If nil, only /healthz, /readyz and /metrics are
	// served, and no key is accepted.
	Ops *ops.Operations

	// Roads is this node's map of the roads. If nil, roads are not served.
	Roads *road.Map
	// ForgetRoads stores that the roads in a box are forgotten. It is required with Roads.
	ForgetRoads func(context.Context, road.Box) error

	// Node is the node whose settings operators can change.
	Node Node

	// Console serves every path that is not part of the API. It is closed when the server shuts
	// down.
	Console Console

	// Hosts are the host names that the listener accepts, in addition to IP addresses and
	// localhost.
	Hosts []string

	// Alive and Ready are the checks of /healthz and /readyz. ReadyFor holds the checks of
	// /readyz/JOB by the name of the job, such as "query". The text of an error is shown without
	// login.
	Alive    func() error
	Ready    func() error
	ReadyFor map[string]func() error
	// FeedAge returns the age of this node's copies of the records: the copies contain every change
	// that is at least as old as this age. ok is false before the copies are first loaded.
	FeedAge func() (age time.Duration, ok bool)
	// Newer returns the names of the streams in which a newer version has stored records that this
	// node cannot read.
	Newer func() []string

	// Started is closed once the tables are filled. Until then, calls wait for at most
	// startPatience and are then refused, because they would report that existing records do not
	// exist. If nil, the tables are filled.
	Started <-chan struct{}

	// Gatherer provides the metrics for /metrics.
	Gatherer prometheus.Gatherer
	// Registry registers the server's own metrics. If nil, they are not registered.
	Registry prometheus.Registerer

	// MaxConnections limits open connections. At the limit, the server closes another connection
	// for a new one, but none with a request in progress from a caller with a key or a session. If
	// 0, it is 512, far more than operators, pages and scrapers need.
	MaxConnections int

	Now     func() time.Time // if nil, time.Now
	Log     *slog.Logger     // if nil, nothing is logged
	TLS     *tls.Config      // if nil, plain HTTP
	Version string           // shown as a metric
}

// Node is the node that this listener administers.
type Node interface {
	Settings() wire.NodeSettings
	// Change applies those fields of its argument that are set.
	Change(wire.NodeSettings)
}

// Console serves the operator's pages. It authenticates its callers itself.
type Console interface {
	http.Handler
	// Close ends the responses that would otherwise never end, such as live pages.
	Close()
}

// Limits of the listener.
const (
	// maxBody is the maximum size of a request body, in bytes. It lets a list that is too long be
	// refused as that. Such a list is decoded while it arrives.
	maxBody       = 64 << 20
	maxHead       = 16 << 10
	headTimeout   = 5 * time.Second
	readTimeout   = time.Minute // for the head and the body of a request
	answerTimeout = 2 * time.Minute
	// startPatience is the time for which a call waits if it arrives before the tables are filled.
	startPatience = 2 * time.Second
	idleTimeout   = time.Minute
)

// Server is the admin listener. Make one with [New]. Shutdown does not cancel changes to records
// that have begun: the store completes them or reports an error.
type Server struct {
	*listen.Server
	cfg     Config
	ops     *ops.Operations
	metrics *metrics
	quiet   lograte.Warning // for all log lines that callers without a key cause
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 512)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Server{cfg: cfg, ops: cfg.Ops, metrics: newMetrics(cfg.Registry, cfg.Version)}
	s.quiet.Limit, s.quiet.Now = 10, cfg.Now
	routes := s.probes()
	if cfg.Ops != nil {
		s.addCalls(routes)
	}
	s.Server = listen.NewServer(&http.Server{
		Handler:                      s.guard(routes),
		ReadHeaderTimeout:            headTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(serverLog{cfg.Log, &s.quiet}, "", 0),
		TLSConfig:                    cfg.TLS,
	}, listen.Config{Max: cfg.MaxConnections, Log: cfg.Log})
	if cfg.Ops != nil {
		s.HTTP.RegisterOnShutdown(cfg.Console.Close)
		s.HTTP.RegisterOnShutdown(cfg.Ops.Close)
	}
	return s
}
