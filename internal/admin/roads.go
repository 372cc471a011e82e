package admin

import (
	"net/http"

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/road"
)

// listRoads returns the function of the API call that answers with the traffic, as GeoJSON.
func (s *Server) listRoads(roads *road.Map) func(http.ResponseWriter, *http.Request) error {
	reader := roadmap.NewReader(roads)
	return func(w http.ResponseWriter, r *http.Request) error {
		box, limit, err := roadmap.Asked(r.URL.Query())
		if err != nil {
			return ops.Refuse(http.StatusBadRequest, "%v", err)
		}
		roadmap.Serve(w, r, reader.Within(box, s.cfg.Now()), limit, nil)
		return nil
	}
}
