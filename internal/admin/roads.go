package admin

import (
	"context"
	"net/http"
	"net/url"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

func (s *Server) listRoads(w http.ResponseWriter, r *http.Request) error {
	box, limit, err := roadmap.Asked(r.URL.Query())
	if err != nil {
		return ops.Refusalf(http.StatusBadRequest, "%v", err)
	}
	roadmap.Serve(w, r, s.cfg.Roads.Within(box, s.cfg.Now()), limit, nil)
	return nil
}

// forgetRoads writes the box into the audit, and into no log.
func (s *Server) forgetRoads(r *http.Request, in wire.ForgetRoadsRequest) (out wire.ForgottenRoads, err error) {
	box, _, err := roadmap.Asked(url.Values{"bbox": {in.BBox}})
	if err != nil {
		return out, ops.Refusalf(http.StatusBadRequest, "%v", err)
	}
	e := access.Event{Action: "road.forget", Object: "roads", Detail: "bbox " + in.BBox}
	return out, s.ops.Audited(r.Context(), caller(r), e, func(ctx context.Context) error {
		out.Stretches = s.cfg.Roads.Forget(box)
		return s.cfg.ForgetRoads(ctx, box)
	})
}
