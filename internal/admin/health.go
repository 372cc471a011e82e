package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.org/carstate/internal/access"
)

func health(well string, check func() error, add func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		line := well
		if err := check(); err != nil {
			line = oneLine(err)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		w.Write([]byte(line + add() + "\n"))
	}
}

// copies describes this node's copies of records, for the end of the line of /readyz.
func (s *Server) copies() (text string) {
	if age, ok := s.cfg.FeedAge(); ok {
		text = fmt.Sprintf("; feed age %.1f s", age.Seconds())
	}
	if streams := s.cfg.Newer(); len(streams) > 0 {
		text += "; upgrade this node: it cannot read what a newer version stored in " + strings.Join(streams, ", ")
	}
	return text
}

func oneLine(err error) string {
	const long = 400
	text := access.OneLine(err)
	if len(text) > long {
		text = strings.ToValidUTF8(text[:long], "") + "…"
	}
	return text
}

// gatherings limits how often the metrics are collected; beyond it, the cached text is sent. So
// callers without a key can neither exhaust the processor nor block a scraper.
var gatherings = access.Rate{Calls: 5, Window: time.Second}

type metricsText struct {
	gather http.Handler
	now    func() time.Time

	mu   sync.Mutex // guards left and kept, and is held while the metrics are gathered
	left access.Budget
	kept map[string]*keptAnswer // by encoding
}

// If a collector fails, the other metrics are still shown. After 10 s, the status is 503.
func (s *Server) showMetrics() http.Handler {
	return &metricsText{now: s.cfg.Now, kept: make(map[string]*keptAnswer),
		gather: promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError,
			ErrorLog:      slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
			Timeout:       10 * time.Second,
		})}
}

func (m *metricsText) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	encoding := "identity"
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		encoding = "gzip"
	}
	k := m.latest(encoding)
	maps.Copy(w.Header(), k.header)
	w.WriteHeader(k.status)
	w.Write(k.body.Bytes())
}

func (m *metricsText) latest(encoding string) *keptAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kept[encoding]
	if _, _, may := m.left.Take(gatherings, 1, m.now()); !may && k != nil {
		return k
	}
	// Callers share the cached text, so it must depend on nothing in a request but the encoding.
	r := &http.Request{Method: http.MethodGet, URL: new(url.URL), Header: http.Header{"Accept-Encoding": {encoding}}}
	k = &keptAnswer{header: make(http.Header), status: http.StatusOK}
	m.gather.ServeHTTP(k, r)
	m.kept[encoding] = k
	return k
}

type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header                  { return k.header }
func (k *keptAnswer) WriteHeader(status int)               { k.status = status }
func (k *keptAnswer) Write(text []byte) (n int, err error) { return k.body.Write(text) }
