package admin

import (
	"net/http"

	"carstate/internal/admin/wire"
)

func (s *Server) listAudit(r *http.Request, _ nothing) (wire.EventList, error) {
	q, err := s.ops.AskedAudit(r.URL.Query())
	if err != nil {
		return wire.EventList{}, err
	}
	page, err := s.ops.Audit(r.Context(), q)
	return wire.EventList{Events: page.Events, Older: page.Older}, err
}
