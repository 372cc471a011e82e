package console

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

func New(cfg Config) *Console {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.LiveEvery = cmp.Or(cfg.LiveEvery, 2*time.Second)
	c := &Console{Config: cfg, scans: make(chan struct{}, maxScans), strips: make(chan struct{}, maxStrips),
		streams: make(chan struct{}, maxStreams)}
	c.sessions.Config, c.sessions.all = &c.Config, make(map[access.Hash]*session)
	c.wrongLog.Limit, c.wrongLog.Now = 10, c.Now
	c.pages = c.parsePages()
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
	}, func() float64 { return float64(len(c.streams)) })
	return c
}

type handler func(http.ResponseWriter, *http.Request, *session)

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { c.showLogin(w, r, http.StatusOK, "") })
	mux.HandleFunc("POST /login", c.login)
	for name, kind := range assets {
		mux.HandleFunc("GET /assets/"+name, asset(name, kind))
	}

	inSession := func(pattern string, made bool, answer handler, refuse http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s := c.sessions.of(r, made); s != nil {
				answer(w, r, s)
				return
			}
			refuse(w, r)
		})
	}
	logIn := func(w http.ResponseWriter, r *http.Request) { c.showLogin(w, r, http.StatusUnauthorized, "") }
	page := func(pattern string, show handler) {
		method, path, _ := strings.Cut(pattern, " ")
		inSession(method+" "+rootPattern+path, true, show, logIn)
	}
	form := func(path string, limit int64, done handler) {
		page("POST "+path, func(w http.ResponseWriter, r *http.Request, s *session) {
			if !parseForm(w, r, limit) {
				c.fail(w, s, "Not done", ops.Refusalf(http.StatusRequestEntityTooLarge, "the form is too long: "+
					"for a long list, use the command line, --vehicles @FILE"))
				return
			}
			done(w, r, s)
		})
	}
	ofVehicle := func(path string, done func(http.ResponseWriter, *http.Request, *session, vehicle.ID)) {
		form("/vehicles/{vid}/"+path, smallForm, func(w http.ResponseWriter, r *http.Request, s *session) {
			if id, err := vehicle.ParseReportingID(r.PathValue("vid")); err == nil {
				done(w, r, s, id)
				return
			}
			c.nothing(w, r, s)
		})
	}
	page("GET /login", func(w http.ResponseWriter, r *http.Request, s *session) { // already logged in
		http.Redirect(w, r, s.root, http.StatusSeeOther)
	})
	page("GET /vehicles", c.vehiclesPage)
	form("/vehicles", smallForm, c.findVehicle)
	page("GET /vehicles/{vid}", c.vehiclePage)
	ofVehicle("forget", c.forget)
	ofVehicle("allow", c.allow)
	ofVehicle("relearn", c.relearn)
	for _, k := range []credentialKind{tokens, sources, operators} {
		p, list := credentialPages{c, k}, "/"+k.list()
		page("GET "+list, func(w http.ResponseWriter, r *http.Request, s *session) { p.showAll(w, r, s, nil, nil) })
		form(list+"/{name}/rotate", smallForm, p.rotate)
		form(list+"/{name}/"+k.Policy().End, smallForm, p.end)
		if k.one == "" { // operators: they have no vehicles
			form(list, smallForm, p.create)
			continue
		}
		form(list, largeForm, p.create)
		page("GET "+list+"/{name}", func(w http.ResponseWriter, r *http.Request, s *session) { p.showOne(w, r, s, nil, nil) })
		form(list+"/{name}/grant", largeForm, p.grant)
		form(list+"/{name}/change", smallForm, p.change)
	}
	form("/adminkey", smallForm, credentialPages{c, operators}.rotateAdminKey)
	page("GET /audit", c.auditPage)
	form("/audit", smallForm, c.findEvents)
	form("/logout", smallForm, c.logout)
	page(" ", c.nothing)
	page(" /", c.nothing)
	// Requests of scripts do not keep a session alive.
	script := func(path string, answer handler) {
		inSession("GET "+rootPattern+path, false, answer, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "log in first", http.StatusUnauthorized)
		})
	}
	scriptOfVehicle := func(path string, answer func(http.ResponseWriter, *http.Request, *session, vehicle.ID)) {
		script(path, func(w http.ResponseWriter, r *http.Request, s *session) {
			id, err := vehicle.ParseID(r.PathValue("vid"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			answer(w, r, s, id)
		})
	}
	live := func(path, name string, v view) {
		page("GET "+path, func(w http.ResponseWriter, r *http.Request, s *session) {
			p, err := v(r.Context(), r, s)
			c.showForm(w, s, err, name, p)
		})
		script("/live/"+name, func(w http.ResponseWriter, r *http.Request, s *session) { c.serveLive(w, r, s, name, v) })
	}
	live("", "fleet", c.fleetPage)
	live("/roads", "roads", c.roadsPage)
	scriptOfVehicle("/live/vehicles/{vid}", c.vehicleLive)
	scriptOfVehicle("/vehicles/{vid}/hour", c.hour)
	script("/roads/stretches", c.stretches)
	scriptOfVehicle("/vehicles/{vid}/stretches", c.vehicleStretches)
	// All other paths show the login page. If this browser has a session, its script opens it.
	mux.HandleFunc("/", logIn)
	return mux
}
