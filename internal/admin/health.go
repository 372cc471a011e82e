package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"carstate/internal/access"
)

// health answers with one line of text: that all is well, or the reason why not,
// and what there is to add to both.
func health(well string, check func() error, add func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		line := well
		if check != nil {
			if err := check(); err != nil {
				line = oneLine(err)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
		w.Write([]byte(line + add() + "\n"))
	}
}

func addNothing() string { return "" }

// feedAge is what /readyz says of the node's copies, well or not.
func (s *Server) feedAge() string {
	if s.cfg.FeedAge == nil {
		return ""
	}
	age, ok := s.cfg.FeedAge()
	if !ok {
		return ""
	}
	return fmt.Sprintf("; feed age %.1f s", age.Seconds())
}

// oneLine makes an error fit for a probe's log: one line, no secret, no essay.
func oneLine(err error) string {
	const long = 400
	text := access.OneLine(err)
	if len(text) > long {
		text = strings.ToValidUTF8(text[:long], "") + "…"
	}
	return text
}

// showMetrics serves the gatherer. What can be collected is shown even where
// something else cannot.
func (s *Server) showMetrics() http.Handler {
	return promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}
