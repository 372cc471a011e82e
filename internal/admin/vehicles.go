package admin

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// listed answers with a page of a list or, if the request names a format, with the complete list as
// a file.
func listed[Query, Page any](
	asked func(url.Values) (Query, error),
	page func(context.Context, Query) (Page, error),
	serve func(w http.ResponseWriter, r *http.Request, q Query, format string) error,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		format, err := ops.FormatAsked(r)
		if err != nil {
			return err
		}
		parameters := r.URL.Query()
		parameters.Del("format")
		q, err := asked(parameters)
		if err != nil {
			return err
		}
		w.Header().Add("Vary", "Accept")
		if format != "" {
			return serve(w, r, q, format)
		}
		list, err := page(r.Context(), q)
		if err == nil {
			writeJSON(w, http.StatusOK, list)
		}
		return err
	}
}

// listChanges ends when the caller's key is replaced or removed.
func (s *Server) listChanges(w http.ResponseWriter, r *http.Request) error {
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := access.HashOf(key)
	return s.ops.ServeChanges(w, r, func() bool { return s.ops.Valid(caller(r), hash) })
}

func (s *Server) showVehicle(r *http.Request, _ nothing) (ops.VehicleRecord, error) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	if err != nil {
		return ops.VehicleRecord{}, ops.Refusalf(http.StatusBadRequest, "%v", err)
	}
	record, _, err := s.ops.Vehicle(r.Context(), id)
	return record, err
}

func onVehicle[T any](
	do func(ctx context.Context, by access.Actor, id vehicle.ID) (T, error),
) func(*http.Request, nothing) (T, error) {
	return func(r *http.Request, _ nothing) (receipt T, err error) {
		id, err := vehicle.ParseReportingID(r.PathValue("vid"))
		if err != nil {
			return receipt, ops.Refusalf(http.StatusBadRequest, "%v", err)
		}
		return do(r.Context(), caller(r), id)
	}
}
