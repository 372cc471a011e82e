package admin

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"carstate/internal/access"
)

// actor is who the audit names for whoever holds the admin key.
const actor = "admin"

// wrongKeys is how often a wrong key may be tried, all callers together. A
// right key always passes, so that nobody can lock the operator out.
var wrongKeys = access.Rate{Calls: 10, Window: time.Second}

// identify checks the admin key: the hashes are compared in constant time.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) error {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := access.HashOf(key)
	if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], s.cfg.AdminKey[:]) == 1 {
		return nil
	}
	s.metrics.wrong.Inc()
	if _, _, ok := s.wrong.Take(wrongKeys, s.cfg.Now()); !ok {
		w.Header().Set("Retry-After", "1")
		return refuse(http.StatusTooManyRequests, "too many wrong keys: wait a second")
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="carstate-admin"`)
	if key == "" {
		return refuse(http.StatusUnauthorized, "this needs the admin key: Authorization: Bearer csa_…")
	}
	s.cfg.Log.Warn("a wrong admin key was refused", "remote", r.RemoteAddr)
	return refuse(http.StatusUnauthorized, "the admin key is not the one of this service: see admin.key in its data directory")
}
