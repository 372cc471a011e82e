package admin

import (
	"context"
	"net/http"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/ops"
)

type callerKey struct{}

func caller(r *http.Request) access.Actor { return r.Context().Value(callerKey{}).(access.Actor) }

// The request that identify returns has the caller. After an error, the headers of a 401 are set.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		if who, _, ok := s.ops.Identify(key); ok {
			// Only a valid key protects a connection from eviction. Otherwise clients without one
			// could keep connections with bodies that never arrive.
			listen.Hold(r.Context())
			return r.WithContext(context.WithValue(r.Context(), callerKey{}, who)), nil
		}
	}
	s.metrics.wrong.Inc()
	challenge := `Bearer realm="carstate-admin"`
	if strings.EqualFold(scheme, "Bearer") && key != "" {
		challenge += `, error="invalid_token"` // RFC 6750 allows it only if a token was sent
	}
	w.Header().Set("WWW-Authenticate", challenge)
	if key == "" {
		return nil, ops.Refusalf(http.StatusUnauthorized,
			"this needs the admin key or an operator's: Authorization: Bearer csa_…")
	}
	s.quiet.Log(s.cfg.Log, "a wrong admin key was refused", "remote", r.RemoteAddr)
	return nil, ops.Refusalf(http.StatusUnauthorized, "the key is neither an operator's nor the admin key of this "+
		"service, which is in admin.key of its data directory")
}
