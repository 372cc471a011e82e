package admin

import (
	"net/http"
	"time"

	"carstate/internal/access"
)

func (s *Server) addSource(r *http.Request, in sourceRequest) (AddedSource, error) {
	if in.Vehicles == nil {
		return AddedSource{}, errVehiclesMissing
	}
	src, key, err := s.deeds.AddSource(r.Context(), caller(r), in.Name, in.Vehicles.Vehicles, in.ExpiresAt.or(time.Time{}))
	if err != nil {
		return AddedSource{}, err
	}
	return AddedSource{src.Name, key, VehicleList{src.Vehicles}}, nil
}

func (s *Server) listSources(*http.Request, nothing) (sourceList, error) {
	list := sourceList{Sources: []SourceSummary{}}
	for _, src := range s.cfg.Sources.List() {
		list.Sources = append(list.Sources, summaryOf(*src))
	}
	return list, nil
}

// showSource shows removed sources too, for as long as they are known.
func (s *Server) showSource(r *http.Request, _ nothing) (SourceRecord, error) {
	src, ok := s.cfg.Sources.Get(r.PathValue("name"))
	if !ok {
		return SourceRecord{}, access.ErrNotFound
	}
	return SourceRecord{summaryOf(*src), earlierUntil(src.Earlier, s.cfg.Now()), VehicleList{src.Vehicles}}, nil
}

func (s *Server) removeSource(r *http.Request, _ nothing) (SourceSummary, error) {
	src, err := s.deeds.RemoveSource(r.Context(), caller(r), r.PathValue("name"))
	if err != nil {
		return SourceSummary{}, err
	}
	return summaryOf(src), nil
}

func summaryOf(s access.Source) SourceSummary {
	return SourceSummary{
		Name:         s.Name,
		VehicleCount: countOf(s.Vehicles),
		CreatedAt:    s.Created,
		ExpiresAt:    orNil(s.Expires),
		RemovedAt:    orNil(s.Removed),
	}
}
