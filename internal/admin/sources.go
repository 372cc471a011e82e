package admin

import (
	"net/http"
	"time"

	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

func (s *Server) addSource(r *http.Request, in wire.SourceRequest) (wire.AddedSource, error) {
	if in.Vehicles == nil {
		return wire.AddedSource{}, errVehiclesMissing
	}
	src, key, err := s.ops.AddSource(r.Context(), caller(r), in.Name, in.Vehicles.Vehicles, in.ExpiresAt.Or(time.Time{}))
	return wire.AddedSource{Name: src.Name, Key: key, Vehicles: src.Vehicles}, err
}

func (s *Server) listSources(*http.Request, nothing) (wire.SourceList, error) {
	return wire.SourceList{Sources: s.ops.Sources()}, nil
}

func (s *Server) showSource(r *http.Request, _ nothing) (ops.SourceRecord, error) {
	return s.ops.Source(r.PathValue("name"))
}

func (s *Server) rotateSource(r *http.Request, in wire.RotateRequest) (wire.RotatedSource, error) {
	overlap, err := overlapOf(in)
	if err != nil {
		return wire.RotatedSource{}, err
	}
	src, key, err := s.ops.RotateSource(r.Context(), caller(r), r.PathValue("name"), overlap)
	return wire.RotatedSource{Name: src.Name, Key: key, EarlierUntil: src.EarlierUntil}, err
}

func (s *Server) removeSource(r *http.Request, _ nothing) (ops.SourceSummary, error) {
	return s.ops.RemoveSource(r.Context(), caller(r), r.PathValue("name"))
}
