package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"carstate/internal/access"
)

func (s *Server) addSource(r *http.Request, in sourceRequest) (AddedSource, error) {
	if in.Vehicles == nil {
		return AddedSource{}, errVehiclesMissing
	}
	if err := s.checkGrantable(slices.Collect(in.Vehicles.Sorted())...); err != nil {
		return AddedSource{}, err
	}
	src, key, err := access.AddSource(in.Name, in.Vehicles.Vehicles, in.ExpiresAt.or(time.Time{}), s.cfg.Now())
	if err != nil {
		return AddedSource{}, refuse(http.StatusBadRequest, "%v", err)
	}
	e := access.Event{Action: "source.add", Object: src.Name, Detail: "vehicles " + s.inWords(src.Vehicles)}
	err = s.deed(r, e, func(ctx context.Context) error { return s.cfg.Keeper.CreateSource(ctx, src) })
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

// removeSource removes once; a second call changes nothing and says the same.
func (s *Server) removeSource(r *http.Request, _ nothing) (SourceSummary, error) {
	name, now := r.PathValue("name"), wireTime(s.cfg.Now())
	known, ok := s.cfg.Sources.Get(name)
	if !ok {
		// Free text from a path must not reach the audit.
		return SourceSummary{}, access.ErrNotFound
	}
	if !known.Removed.IsZero() {
		return summaryOf(*known), nil
	}
	var src access.Source
	err := s.deed(r, access.Event{Action: "source.remove", Object: name}, func(ctx context.Context) (err error) {
		src, err = s.cfg.Keeper.UpdateSource(ctx, name, func(src *access.Source) error {
			src.Removed = now
			return nil
		})
		return err
	})
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

// wireTime is a time as records keep it.
func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
