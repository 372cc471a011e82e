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
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// Config configures a [Console]. QueryURL and the fields after Secure are optional.
type Config struct {
	Ops     *ops.Operations
	Monitor *Monitor
	// Known protects the connection of a request that has a session from eviction.
	Known func(request context.Context)

	// Recent is that of [store.Engine].
	Recent func(ctx context.Context, id vehicle.ID, most int) (store.Recent, error)
	// Ready and Writable return the reason why the node is not ready, or cannot store data.
	Ready, Writable func() error

	Roads    *roadmap.Reader
	QueryURL string // of the example request
	Secure   bool
	Version  string
	DocsURL  string

	LiveEvery time.Duration // if 0, 2 s
	Registry  prometheus.Registerer
	Log       *slog.Logger
	Now       func() time.Time
}

type Console struct {
	Config
	pages    map[string]*template.Template
	sessions sessions
	scans    chan struct{} // one element for each curve being read
	strips   chan struct{} // one element for each strip being made
	streams  chan struct{} // one element for each live page
	wrong    prometheus.Counter
	wrongLog lograte.Warning // anybody can cause its lines
	mux      *http.ServeMux
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin") // otherwise forms would have no Origin to check
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	c.mux.ServeHTTP(w, r)
}
