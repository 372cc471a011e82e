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

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/road"
)

// Config needs Alive, Ready, FeedAge, Newer and Gatherer; with Ops, it also needs Roads,
// ForgetRoads, Node and Console.
type Config struct {
	// If nil, only /healthz, /readyz and /metrics are served.
	Ops *ops.Operations

	Roads       *roadmap.Reader
	ForgetRoads func(context.Context, road.Box) error

	Node Node

	// Console authenticates its callers itself.
	Console http.Handler

	Hosts []string

	// ReadyFor holds the checks of /readyz/JOB by the job, such as "query". Errors are shown
	// without login.
	Alive    func() error
	Ready    func() error
	ReadyFor map[string]func() error
	// FeedAge returns the age of this node's copies of the records. ok is false before they are
	// first loaded.
	FeedAge func() (age time.Duration, ok bool)
	// Newer returns the streams with records of a newer version, which this node cannot read.
	Newer func() []string

	// Started is closed once the tables are filled. Until then, calls wait for startPatience and
	// are then refused, because they would report that existing records do not exist. May be nil.
	Started <-chan struct{}

	Gatherer prometheus.Gatherer
	// May be nil.
	Registry prometheus.Registerer

	// MaxConnections, by default 512, limits open connections. At the limit, an idle one is closed
	// for a new one.
	MaxConnections int

	Now     func() time.Time // if nil, time.Now
	Log     *slog.Logger     // if nil, nothing is logged
	TLS     *tls.Config      // if nil, plain HTTP
	Version string
}

type Node interface {
	Settings() wire.NodeSettings
	Change(wire.NodeSettings)
}

const (
	// maxBody is far above the limits of lists, so that the refusal of a list that is too long says
	// what its limit is.
	maxBody       = 64 << 20
	startPatience = 2 * time.Second
)

// Server is the admin listener. Shutdown does not cancel changes that have begun.
type Server struct {
	*listen.Server
	cfg     Config
	ops     *ops.Operations
	metrics *metrics
	quiet   lograte.Warning // for lines that callers without a key cause
}

func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 512)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Server{cfg: cfg, ops: cfg.Ops, metrics: newMetrics(cfg.Registry, cfg.Version)}
	s.quiet.Limit, s.quiet.Now = 10, cfg.Now
	s.Server = listen.NewServer(&http.Server{
		Handler:                      s.guard(s.routes()),
		ReadHeaderTimeout:            5 * time.Second,
		ReadTimeout:                  time.Minute, // for the head and the body of a request
		WriteTimeout:                 2 * time.Minute,
		IdleTimeout:                  time.Minute,
		MaxHeaderBytes:               16 << 10,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(serverLog{cfg.Log, &s.quiet}, "", 0),
		TLSConfig:                    cfg.TLS,
	}, listen.Config{Max: cfg.MaxConnections, Log: cfg.Log})
	if cfg.Ops != nil {
		s.HTTP.RegisterOnShutdown(cfg.Ops.Close)
	}
	return s
}
