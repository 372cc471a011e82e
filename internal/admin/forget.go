package admin

import (
	"context"
	"net/http"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// ForgetReceipt says what became of a vehicle that was forgotten or allowed
// again, without naming it.
type ForgetReceipt = access.ForgetReceipt

// deedOn is what Forget and Allow of the configuration are.
type deedOn = func(ctx context.Context, id vehicle.ID, by string) (ForgetReceipt, error)

// forgetting makes the call that forgets a vehicle, or allows it again. Both
// audit themselves, under the vehicle's hash: nothing else may name it.
func (s *Server) forgetting(do deedOn) func(*http.Request, nothing) (ForgetReceipt, error) {
	return func(r *http.Request, _ nothing) (ForgetReceipt, error) {
		id, err := vehicle.ParseID(r.PathValue("vid"))
		if err != nil {
			return ForgetReceipt{}, refuse(http.StatusBadRequest, "%v", err)
		}
		if len(id) > vehicle.MaxReportingID {
			return ForgetReceipt{}, refuse(http.StatusBadRequest, "no vehicle reports with more than %d characters", vehicle.MaxReportingID)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTimeout)
		defer cancel()
		return do(ctx, id, actor)
	}
}

// checkGrantable refuses to write the name of a forgotten vehicle down again.
func (s *Server) checkGrantable(ids ...vehicle.ID) error {
	for i, id := range ids {
		if s.cfg.Forgotten != nil && s.cfg.Forgotten(id) {
			return refuse(http.StatusConflict, "vehicle %d of the list was forgotten: allow it first (carstate forget VID --allow)", i+1)
		}
	}
	return nil
}
