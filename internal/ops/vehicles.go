package ops

import (
	"context"
	"net/http"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Forget may be repeated.
func (p *Operations) Forget(ctx context.Context, by access.Actor, id vehicle.ID) (access.ForgetReceipt, error) {
	return p.onVehicle(ctx, by, "vehicle.forget", id, p.cfg.Store.Forget)
}

func (p *Operations) Allow(ctx context.Context, by access.Actor, id vehicle.ID) (access.ForgetReceipt, error) {
	if !p.cfg.Forgotten.Has(id) {
		return access.ForgetReceipt{}, noRecord("vehicle.allow")
	}
	return p.onVehicle(ctx, by, "vehicle.allow", id, p.cfg.Store.Allow)
}

type Relearned struct {
	VID string    `json:"vid"`
	At  time.Time `json:"relearned_at"`
}

// Relearn discards what was learned of a throttle, as after a repair.
func (p *Operations) Relearn(ctx context.Context, by access.Actor, id vehicle.ID) (Relearned, error) {
	_, s, err := p.Vehicle(ctx, id)
	if err != nil {
		return Relearned{}, err
	}
	at := max(signal.At(p.cfg.Now()), s.Time+1) // the vehicle's clock may be ahead
	e := access.Event{Action: "vehicle.relearn", Object: p.cfg.Forgotten.Hash(id).String()}
	err = p.Audited(ctx, by, e, func(ctx context.Context) error {
		return p.cfg.Append(ctx, []vehicle.Sample{vehicle.Relearn(id, at)})
	})
	return Relearned{string(id), at.Time()}, err
}

func (p *Operations) Forgotten(id vehicle.ID) (t access.Tombstone, ok bool) {
	t, ok = p.cfg.Forgotten.Find(id)
	return t, ok && t.InForce()
}

func (p *Operations) onVehicle(
	ctx context.Context, by access.Actor, action string, id vehicle.ID,
	do func(context.Context, vehicle.ID) (access.ForgetReceipt, error),
) (receipt access.ForgetReceipt, err error) {
	e := access.Event{Action: action, Object: p.cfg.Forgotten.Hash(id).String()}
	err = p.Audited(ctx, by, e, func(ctx context.Context) (err error) {
		receipt, err = do(ctx, id)
		return err
	})
	return receipt, err
}

// A grant would store the vid of a forgotten vehicle again.
func (p *Operations) checkGrantable(ids ...vehicle.ID) error {
	for i, id := range ids {
		if p.cfg.Forgotten.Has(id) {
			return Refusalf(http.StatusConflict,
				"vehicle %d of the list was forgotten: allow it first (carstate forget VID --allow)", i+1)
		}
	}
	return nil
}
