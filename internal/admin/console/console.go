package console

import (
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/vehicle"
)

// Config holds the dependencies of a [Console]. All fields are required except Roads, QueryURL,
// and the fields after Secure.
type Config struct {
	Ops     *ops.Operations
	Monitor *Monitor
	// Known is called with the context of each request that has a session. It prevents the eviction
	// of the request's connection: a full listener closes other connections to admit new ones.
	Known func(request context.Context)

	// Recent reads a vehicle's newest retained samples: at least most, or all. If ctx ends first,
	// it returns those read so far. They contain every sample stored since the time since; all says
	// that no older one is stored.
	Recent func(ctx context.Context, id vehicle.ID, most int) (samples []vehicle.Sample, since time.Time, all bool,
		err error)
	// Ready and Writable return nil, or the reason why the node is not ready, or cannot store data.
	Ready, Writable func() error

	Roads    *road.Map // this node's map of the roads; if nil, none
	QueryURL string    // base URL of the query API, for the example request; if empty, no example is shown
	Secure   bool      // the listener uses TLS
	Version  string    // version of the program; if empty, pages do not name it
	DocsURL  string    // the documentation of the queries; if empty, pages have no link to it

	LiveEvery time.Duration         // interval between updates of live pages; if 0, 2 s
	Registry  prometheus.Registerer // if nil, metrics are not registered
	Log       *slog.Logger          // if nil, nothing is logged
	Now       func() time.Time      // if nil, time.Now
}

// Console serves the pages for operators. Make one with [New].
type Console struct {
	Config
	pages    pages
	roads    *roadmap.Reader // nil if Roads is nil
	sessions sessions
	scans    chan struct{} // one element for each curve that is being read
	strips   chan struct{} // one element for each strip that is being made
	wrong    prometheus.Counter
	wrongLog lograte.Warning // anybody can cause its lines
	mux      *http.ServeMux

	closing context.Context // ended by close
	close   context.CancelFunc
}

// pages holds the templates of the pages, by name.
type pages map[string]*template.Template

// Close ends the responses of the live pages. The response of a live page stays open to keep the
// page up to date, so it would not end by itself.
func (c *Console) Close() { c.close() }

// policy is the Content-Security-Policy of all pages. With it, pages may load and call only this
// server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves all pages.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin") // without it, the requests of forms would have no Origin header to check
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	c.mux.ServeHTTP(w, r)
}
