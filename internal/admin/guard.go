package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"example.org/carstate/internal/ops"
)

// guard refuses requests that a browser may have been tricked into sending (DESIGN.md), paths
// that are not clean, and calls before the tables are filled. The Origin or Sec-Fetch-Site header
// shows a page of another site, and the Host header DNS rebinding.
func (s *Server) guard(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	otherOrigin := func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, ops.Refusalf(http.StatusForbidden, "a page of another origin may not send this"))
	}
	sameOrigin.SetDenyHandler(http.HandlerFunc(otherOrigin))
	next = sameOrigin.Handler(next)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

		p := r.URL.EscapedPath()
		if !isProbe(p) && !s.answersTo(r.Host) {
			writeError(w, ops.Refusalf(http.StatusMisdirectedRequest,
				"this listener answers to IP addresses, localhost and the host names in --admin-hosts"))
			return
		}
		if !isProbe(p) && loadedElsewhere(r) {
			otherOrigin(w, r)
			return
		}
		page := strings.TrimSuffix(p, "/")
		if strings.HasPrefix(p, "/s/") && page == path.Clean(p) && page != p && r.Method == http.MethodGet {
			if r.URL.RawQuery != "" {
				page += "?" + r.URL.RawQuery
			}
			http.Redirect(w, r, page, http.StatusSeeOther)
			return
		}
		if !strings.HasPrefix(p, "/") || p != path.Clean(p) {
			notFound(w, r)
			return
		}
		if !isProbe(p) && p != "/metrics" && !s.started(r.Context()) {
			writeError(w, ops.Refusalf(http.StatusServiceUnavailable,
				"the node is starting and has not read its records yet: try again in a moment"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) started(ctx context.Context) bool {
	if s.cfg.Started == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-s.cfg.Started:
		return true
	case <-ctx.Done():
		return false
	}
}

// Probes may use any host name, because their responses contain nothing that a hostile page could
// use. The response of /metrics does: it says how the fleet drives.
func isProbe(p string) bool {
	return p == "/healthz" || p == "/readyz" || strings.HasPrefix(p, "/readyz/")
}

// An empty Host is accepted: probes of load balancers may use HTTP/1.0. Browsers always send a Host.
func (s *Server) answersTo(host string) bool {
	if host == "" {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == "" // no browser sends a zone, and it may be any text
	}
	host = strings.TrimSuffix(host, ".")
	same := func(name string) bool { return strings.EqualFold(name, host) }
	return same("localhost") || slices.ContainsFunc(s.cfg.Hosts, same)
}

// loadedElsewhere reports whether a page of another origin made the request automatically. Such
// a page cannot read the response, but could keep live pages open and make the node read telemetry.
// Following a link is not such a request.
func loadedElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") &&
		(r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document")
}
