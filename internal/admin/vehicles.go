package admin

import (
	"context"
	"net/http"

	"carstate/internal/access"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// listVehicles answers with vehicles: with one page of the list as JSON or, if the request asks for
// a file format, with the complete list as a file.
func (s *Server) listVehicles(w http.ResponseWriter, r *http.Request) error {
	q, err := ops.AskedVehicles(r.URL.Query())
	if err != nil {
		return err
	}
	format, err := ops.FormatAsked(r)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if format != "" {
		return s.ops.ServeVehicles(w, r, q, format)
	}
	page, err := s.ops.Vehicles(r.Context(), q)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

func (s *Server) showVehicle(r *http.Request, _ nothing) (ops.VehicleRecord, error) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	if err != nil {
		return ops.VehicleRecord{}, ops.Refuse(http.StatusBadRequest, "%v", err)
	}
	record, _, err := s.ops.Vehicle(r.Context(), id)
	return record, err
}

// onVehicle returns the function of an API call on the vehicle whose vid is in the path. The
// function do forgets the vehicle, or allows its telemetry again, and returns the receipt: the
// record of the operation, which is the response body. If the vid is invalid, do is not called.
func onVehicle(
	do func(ctx context.Context, by access.Actor, id vehicle.ID) (access.ForgetReceipt, error),
) func(*http.Request, nothing) (access.ForgetReceipt, error) {
	return func(r *http.Request, _ nothing) (access.ForgetReceipt, error) {
		id, err := vehicle.ParseReportingID(r.PathValue("vid"))
		if err != nil {
			return access.ForgetReceipt{}, ops.Refuse(http.StatusBadRequest, "%v", err)
		}
		return do(r.Context(), caller(r), id)
	}
}
