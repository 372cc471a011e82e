package query

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/listen"

	"github.com/prometheus/client_golang/prometheus"
)

// Config requires the fields up to Registry.
type Config struct {
	Tokens *access.Tokens
	Fleet  *fleet.Table
	// Ready is called for every query, and must not block or allocate. Clients do not see its
	// error.
	Ready    func(now time.Time) error
	Log      *slog.Logger
	Registry prometheus.Registerer

	// If MaxAge is zero or less, verdicts may have any age.
	MaxAge         time.Duration
	NoDocs         bool           // the documentation gets 404
	TrustedProxies []netip.Prefix // their X-Forwarded-For names the client
	AccessLog      *AccessLog     // may be nil
	Limit          *listen.Limit  // may be nil
	// At MaxConnections, each of about 10 KiB, one is evicted for a newer one, or the newer one
	// gets 503. If zero, it is 16384.
	MaxConnections                         int
	HeadTimeout, WriteTimeout, IdleTimeout time.Duration // see [http1.Config]

	TLS *tls.Config      // if nil, plain HTTP
	Now func() time.Time // for answers; if nil, time.Now
}

// SpareConnections beyond MaxConnections get an answer that says so.
const SpareConnections = 256

// sendBuffer limits the unread bytes in the kernel for one connection.
const sendBuffer = 64 << 10

func New(c Config) *http1.Server {
	a := &answerer{Config: c, metrics: newMetrics(c.Registry)}
	if !c.NoDocs {
		a.docs = newDocuments(c.MaxAge)
	}
	return http1.New(http1.Config{
		NewHandler: func() http1.Handler { return &exchange{of: a} },
		Listen: listen.Config{
			Max: cmp.Or(c.MaxConnections, 16384), Spare: SpareConnections, SendBuffer: sendBuffer,
			Limit: c.Limit, Dropped: a.metrics.dropped.Inc, Log: c.Log,
		},
		HeadTimeout: c.HeadTimeout, WriteTimeout: c.WriteTimeout, IdleTimeout: c.IdleTimeout, TLS: c.TLS,
	})
}

type exchange struct {
	of       *answerer
	response response
}

func (e *exchange) Answer(r *http1.Request, now time.Time) *http1.Response {
	e.of.answer(r, e.of.at(now), &e.response)
	return &e.response.Response
}

func (e *exchange) Refuse(f http1.Fault, now time.Time) *http1.Response {
	e.response.start(e.of.at(now))
	e.response.fail(failures[string(f)])
	return &e.response.Response
}

func (e *exchange) Done(r *http1.Request, start time.Time, took time.Duration) {
	e.of.metrics.observe(&e.response, took)
	if l := e.of.AccessLog; l != nil {
		l.logAnswer(r, &e.response, clientOf(r.Peer, r.Headers, e.of.TrustedProxies), e.of.at(start), took)
	}
}

func (a *answerer) at(now time.Time) time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return now
}
