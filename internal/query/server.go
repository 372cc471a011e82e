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
	// At MaxConnections, each of about 10 KiB, an older one is evicted for a newer one, or the newer
	// one gets 503. If zero, it is 16384.
	MaxConnections                         int
	HeadTimeout, WriteTimeout, IdleTimeout time.Duration // see [http1.Config]

	TLS *tls.Config      // if nil, plain HTTP
	Now func() time.Time // for answers; if nil, time.Now
}

// SpareConnections beyond MaxConnections get an answer that says so.
const SpareConnections = 256

const sendBuffer = 64 << 10 // bytes

func New(c Config) *http1.Server {
	a := &answerer{Config: c, metrics: newMetrics(c.Registry)}
	if !c.NoDocs {
		a.docs = newDocuments(c.MaxAge)
	}
	return http1.New(http1.Config{
		NewHandler: a.newHandler,
		Listen: listen.Config{
			Max: cmp.Or(c.MaxConnections, 16384), Spare: SpareConnections, SendBuffer: sendBuffer,
			Limit: c.Limit, Dropped: a.metrics.dropped.Inc, Log: c.Log,
		},
		HeadTimeout: c.HeadTimeout, WriteTimeout: c.WriteTimeout, IdleTimeout: c.IdleTimeout, TLS: c.TLS,
	})
}

func (a *answerer) newHandler() http1.Handler {
	w := new(response)
	return func(r *http1.Request, f http1.Fault, start time.Time) *http1.Response {
		now := start
		if a.Now != nil {
			now = a.Now()
		}
		w.start(now)
		var took time.Duration
		if f != http1.None {
			w.fail(failures[string(f)])
		} else {
			a.answer(r, now, w)
			took = time.Since(start)
		}
		a.metrics.observe(w, took)
		if a.AccessLog != nil {
			a.AccessLog.logAnswer(r, w, clientOf(r.Peer, r.Headers, a.TrustedProxies), now, took)
		}
		return &w.Response
	}
}
