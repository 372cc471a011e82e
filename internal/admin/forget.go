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

// Forget erases a vehicle everywhere. It is audited under the vehicle's hash:
// nothing else may name it.
func (d *Deeds) Forget(ctx context.Context, by string, id vehicle.ID) (ForgetReceipt, error) {
	return d.forgetting(ctx, by, id, "vehicle.forget", d.cfg.Forget)
}

// Allow lets a forgotten vehicle report again.
func (d *Deeds) Allow(ctx context.Context, by string, id vehicle.ID) (ForgetReceipt, error) {
	return d.forgetting(ctx, by, id, "vehicle.allow", d.cfg.Allow)
}

func (d *Deeds) forgetting(ctx context.Context, by string, id vehicle.ID, name string, do deedOn) (ForgetReceipt, error) {
	if do == nil {
		return ForgetReceipt{}, refuse(http.StatusNotFound, "vehicles cannot be forgotten here")
	}
	if len(id) > vehicle.MaxReportingID {
		return ForgetReceipt{}, refuse(http.StatusBadRequest, "no vehicle reports with more than %d characters", vehicle.MaxReportingID)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	receipt, err := do(ctx, id, by)
	if err != nil {
		return ForgetReceipt{}, d.explain(name, err)
	}
	return receipt, nil
}

// onVehicle makes the call of a deed on the vehicle that the path names.
func onVehicle(do func(ctx context.Context, by string, id vehicle.ID) (ForgetReceipt, error)) func(*http.Request, nothing) (ForgetReceipt, error) {
	return func(r *http.Request, _ nothing) (ForgetReceipt, error) {
		id, err := vehicle.ParseID(r.PathValue("vid"))
		if err != nil {
			return ForgetReceipt{}, refuse(http.StatusBadRequest, "%v", err)
		}
		return do(r.Context(), caller(r), id)
	}
}
