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
	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// Config is what a [Server] is made of. Tokens, Sources, Keeper and AdminKey
// are required, unless it is ProbesOnly.
type Config struct {
	// ProbesOnly serves /healthz, /readyz and /metrics and nothing else: no
	// key opens anything.
	ProbesOnly bool

	// Tokens and Sources are this node's copies. They are read for listings
	// and written by the Keeper alone.
	Tokens  *access.Tokens
	Sources *access.Sources
	Keeper  Keeper
	// Operators is this node's copy of the operators; nil: there are none.
	Operators *access.Operators

	// State reads what is stored of a vehicle; nil: vehicles are not shown.
	State func(context.Context, vehicle.ID) (s vehicle.State, ok bool, err error)
	// MaxAge is how old readings may be and still answer a query.
	MaxAge time.Duration

	// Roads is what this node knows of the roads; nil: they are not shown.
	Roads *road.Map

	// Forget erases a vehicle everywhere, Allow lets it report again; both
	// audit it as done by the operator named. Nil: it is not offered.
	Forget func(ctx context.Context, id vehicle.ID, by string) (ForgetReceipt, error)
	Allow  func(ctx context.Context, id vehicle.ID, by string) (ForgetReceipt, error)
	// Forgotten reports whether a vehicle is forgotten, so that it can be
	// granted to nobody; nil: none is.
	Forgotten func(vehicle.ID) bool
	// VehicleName is how the audit names a vehicle: by a hash, so that it
	// need not be changed when the vehicle is forgotten. Nil: vehicles are
	// counted, not named.
	VehicleName func(vehicle.ID) string

	// Store backs up and restores; nil: neither is offered.
	Store Store

	// AdminKey is the hash of the key that opens the API.
	AdminKey access.Hash
	// KeyDir is the directory that holds the key's file; "": the key cannot
	// be rotated.
	KeyDir string

	// Console makes what is served at every path that is not the API's; nil:
	// nothing is. It is closed when the server shuts down.
	Console func(*Deeds) Console

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

	// Started is closed once Tokens, Sources and Operators hold all that is
	// stored. Until then nothing is answered that rests on them: a record would
	// be said not to exist. Nil: they hold it.
	Started <-chan struct{}

	// Gatherer is what /metrics shows; nil: /metrics is not found.
	Gatherer prometheus.Gatherer
	// Registry takes the server's own metrics; nil: they are not kept.
	Registry prometheus.Registerer

	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: nothing is logged
	TLS     *tls.Config      // nil: plain HTTP
	Version string           // shown as a metric
}

// Keeper stores tokens, sources and the audit. When a call returns nil, the
// record is on disk and this node's own tables hold it. Errors wrap
// [access.ErrNotFound] and [access.ErrExists] where those apply, and what a
// change function returned.
type Keeper interface {
	CreateToken(ctx context.Context, t access.Token) error
	// UpdateToken applies change to the stored record, by compare-and-set:
	// change may run more than once. An error from it stores nothing.
	UpdateToken(ctx context.Context, id string, change func(*access.Token) error) (access.Token, error)
	// CreateSource refuses, with ErrExists, a name held by a source that was
	// not removed.
	CreateSource(ctx context.Context, s access.Source) error
	// UpdateSource is UpdateToken for a source that was not removed.
	UpdateSource(ctx context.Context, name string, change func(*access.Source) error) (access.Source, error)
	Audit(ctx context.Context, e access.Event) error
	// AuditTail returns the latest events, newest first.
	AuditTail(ctx context.Context, limit int) ([]access.Event, error)
	// CreateOperator and UpdateOperator are as those for sources.
	CreateOperator(ctx context.Context, o access.Operator) error
	UpdateOperator(ctx context.Context, name string, change func(*access.Operator) error) (access.Operator, error)
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
	deeds   *Deeds
	http    *http.Server
	metrics *metrics
	wrong   access.Budget // what is left for wrong keys, of all callers together
}

// New makes a server that does not listen yet.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Operators == nil {
		cfg.Operators = new(access.Operators)
	}
	s := &Server{cfg: cfg, metrics: newMetrics(cfg.Registry, cfg.Version)}
	routes := s.probes()
	var console Console
	if !cfg.ProbesOnly {
		s.deeds = newDeeds(cfg)
		if cfg.Console != nil {
			console = cfg.Console(s.deeds)
		}
		s.addCalls(routes, console)
	}
	open := &connections{open: make(map[net.Conn]bool)}
	s.http = &http.Server{
		Handler:                      open.note(s.guard(routes)),
		ReadHeaderTimeout:            headTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHead,
		DisableGeneralOptionsHandler: true,
		ConnContext:                  remember,
		ConnState:                    open.follow,
		ErrorLog:                     newServerLog(cfg.Log),
	}
	if cfg.TLS != nil {
		s.http.TLSConfig = cfg.TLS.Clone()
	}
	if console != nil {
		s.http.RegisterOnShutdown(console.Close)
	}
	return s
}

// Serve answers on l until [Server.Shutdown], and then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
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
// their connections are closed and the context's error is returned; a deed under
// way is then still finished or failed by the Keeper.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}
