package admin

import (
	"context"
	"net/http"
	"strconv"
)

// How many events GET /v1/audit answers with.
const (
	defaultEvents = 100
	maxEvents     = 1000
)

func (s *Server) listAudit(r *http.Request, _ nothing) (eventList, error) {
	limit := defaultEvents
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxEvents {
			return eventList{}, refuse(http.StatusBadRequest, "limit is a number from 1 to %d", maxEvents)
		}
		limit = n
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	events, err := s.cfg.Keeper.AuditTail(ctx, limit)
	if err != nil {
		s.cfg.Log.Error("the audit cannot be read", "error", oneLine(err))
		return eventList{}, refuse(http.StatusServiceUnavailable, "the audit cannot be read; the service's log says why")
	}
	return eventList{events}, nil
}
