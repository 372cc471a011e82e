package admin

import (
	"net/http"

	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

// listAudit answers with one page of the audit as JSON, or with all matching events as a file.
func (s *Server) listAudit(w http.ResponseWriter, r *http.Request) error {
	format, err := ops.FormatAsked(r)
	if err != nil {
		return err
	}
	asked := r.URL.Query()
	asked.Del("format")
	q, err := s.ops.AskedAudit(asked)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if format != "" {
		return s.ops.ServeAudit(w, r, q, format)
	}
	page, err := s.ops.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, wire.EventList{Events: page.Events, Older: page.Older, MayConcern: page.MayConcern})
	return nil
}
