package admin

import (
	"net/http"
	"strconv"

	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

// How many events GET /v1/audit answers with.
const (
	defaultEvents = 100
	maxEvents     = 1000
)

func (s *Server) listAudit(r *http.Request, _ nothing) (wire.EventList, error) {
	limit := defaultEvents
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxEvents {
			return wire.EventList{}, ops.Refuse(http.StatusBadRequest, "limit is a number from 1 to %d", maxEvents)
		}
		limit = n
	}
	events, _, err := s.ops.Audit(r.Context(), 0, limit)
	return wire.EventList{Events: events}, err
}
