package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"carstate/internal/access"
	"carstate/internal/admin/roadmap"
	"carstate/internal/ops"
	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// Config holds the dependencies of a [Console]. All fields are required except Roads, QueryURL,
// and the fields after Secure.
type Config struct {
	Ops     *ops.Operations
	Monitor *Monitor
	// Known is called with the context of each request that has a session. It prevents the eviction
	// of the request's connection: a full listener closes other connections to admit new ones.
	Known func(request context.Context)

	// Recent reads a vehicle's newest retained samples: at least the number in most, or all if
	// there are fewer. If ctx ends first, it returns the samples that it has read so far. The
	// result contains every sample that was stored at the returned time or later; if all is true,
	// no older sample is stored.
	Recent func(ctx context.Context, id vehicle.ID, most int) (samples []vehicle.Sample, since time.Time, all bool,
		err error)
	// Ready returns an error if the node is not ready. Writable returns an error if the node cannot
	// store.
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
	attempts attempts
	streams  streams
	wrong    prometheus.Counter
	mux      *http.ServeMux

	closing chan struct{} // closed by Close
	close   func()
}

//go:embed files
var files embed.FS

// New returns a console.
func New(cfg Config) *Console {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.LiveEvery = cmp.Or(cfg.LiveEvery, 2*time.Second)
	c := &Console{Config: cfg, closing: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closing) })
	c.sessions = sessions{ops: cfg.Ops, known: cfg.Known, now: cfg.Now, secure: cfg.Secure}
	c.attempts.seed = maphash.MakeSeed()
	c.pages = c.parsePages()
	if cfg.Roads != nil {
		c.roads = roadmap.NewReader(cfg.Roads)
	}
	c.mux = c.routes()
	auto := promauto.With(cfg.Registry)
	c.wrong = auto.NewCounter(prometheus.CounterOpts{
		Name: "carstate_console_wrong_keys_total", Help: "Wrong keys at the console's login.",
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_console_sessions", Help: "Browsers in which somebody is logged in at the console.",
	}, c.sessions.count)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_console_live_pages", Help: "Pages of the console that are being kept up to date.",
	}, c.streams.count)
	return c
}

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

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", c.loginPage)
	mux.HandleFunc("POST /login", c.login)
	for name, kind := range assets {
		mux.HandleFunc("GET /assets/"+name, asset(name, kind))
	}

	// The following pages need a session.
	page := func(pattern string, show handler) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+rootPattern+path, func(w http.ResponseWriter, r *http.Request) {
			if s := c.sessions.of(r, true); s != nil {
				show(w, r, s)
				return
			}
			c.showLogin(w, r, http.StatusUnauthorized, "")
		})
	}
	page("GET ", c.fleetPage)
	page("GET /login", c.loggedIn)
	page("GET /vehicles", c.vehiclesPage)
	page("POST /vehicles", c.findVehicle)
	page("GET /vehicles/{vid}", c.vehiclePage)
	page("POST /vehicles/{vid}/forget", c.forget)
	page("POST /vehicles/{vid}/allow", c.allow)
	page("GET /roads", c.roadsPage)
	page("GET /tokens", first(c.showTokens))
	page("POST /tokens", c.create(access.TokenKind, largeForm, "Token issued", c.tokenRequest, c.showTokens))
	page("GET /tokens/{name}", first(c.showToken))
	page("POST /tokens/{name}/grant", c.grant(access.TokenKind, c.showToken))
	page("POST /tokens/{name}/change", c.change(access.TokenKind, c.showToken))
	page("POST /tokens/{name}/rotate", c.rotate(access.TokenKind, "Token rotated", c.showTokens))
	page("POST /tokens/{name}/revoke",
		c.end(access.TokenKind, revokeToken, "The token of %s is revoked: queries with it are refused from now on.",
			c.showTokens))
	page("GET /sources", first(c.showSources))
	page("POST /sources", c.create(access.SourceKind, largeForm, "Source added", sourceRequest, c.showSources))
	page("GET /sources/{name}", first(c.showSource))
	page("POST /sources/{name}/grant", c.grant(access.SourceKind, c.showSource))
	page("POST /sources/{name}/change", c.change(access.SourceKind, c.showSource))
	page("POST /sources/{name}/rotate", c.rotate(access.SourceKind, "Source rotated", c.showSources))
	page("POST /sources/{name}/remove",
		c.end(access.SourceKind, removeSource, "The source %s is removed: its telemetry is refused from now on.",
			c.showSources))
	page("GET /operators", first(c.showOperators))
	page("POST /operators",
		c.create(access.OperatorKind, smallForm, "Operator added", operatorRequest, c.showOperators))
	page("POST /operators/{name}/rotate", c.rotate(access.OperatorKind, "Operator's key rotated", c.showOperators))
	page("POST /operators/{name}/remove",
		c.end(access.OperatorKind, removeOperator, "The operator %s is removed and logged out.", c.showOperators))
	page("POST /adminkey", c.rotateAdminKey)
	page("GET /audit", c.auditPage)
	page("POST /audit", c.findEvents)
	page("POST /logout", c.logout)
	page(" ", c.nothing)
	page(" /", c.nothing)
	mux.HandleFunc("GET "+rootPattern+"/live/fleet", c.fleetLive)
	mux.HandleFunc("GET "+rootPattern+"/live/vehicles/{vid}", c.vehicleLive)
	mux.HandleFunc("GET "+rootPattern+"/live/roads", c.roadsLive)
	mux.HandleFunc("GET "+rootPattern+"/vehicles/{vid}/hour", c.hour)
	mux.HandleFunc("GET "+rootPattern+"/roads/stretches", c.stretches)
	mux.HandleFunc("GET "+rootPattern+"/vehicles/{vid}/stretches", c.vehicleStretches)
	// All other paths do not begin with a session's root. They show the login. If this browser has
	// a session, the login's script leads to it.
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { c.showLogin(w, r, http.StatusUnauthorized, "") })
	return mux
}

// assets are the files that the pages load, with their media types.
var assets = map[string]string{
	"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8",
	"roads.js": "text/javascript; charset=utf-8",
	"icon.svg": "image/svg+xml",
}

// assetVersion is a hash of the assets. It is part of their URLs, so that a browser may cache them.
var assetVersion = func() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		text, _ := files.ReadFile("files/" + name)
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}()

func asset(name, kind string) http.HandlerFunc {
	content, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // cannot happen: the file is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "private, max-age=86400")
		w.Write(content)
	}
}
