package matrix

import (
	"context"
	"math/rand/v2"
	"time"

	"carstate/internal/vehicle"
)

// change changes tokens and forgets vehicles, one after the other and without a
// pause, until the context ends. For a token that is revoked another one is issued,
// so that there always are as many to change.
func (w *world) change(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.a.Seed, 1000))
	var live []*holder
	overlaps := make(map[*holder]int)
	for _, h := range w.holders {
		if h.mutable && !h.sandbox {
			live = append(live, h)
		}
	}
	forgets := w.forgets
	var granted, revoked, rotated int
	for ctx.Err() == nil {
		i := rng.IntN(len(live))
		h := live[i]
		g := h.life(len(h.lives) - 1) // nobody else appends
		var err error
		switch pick := rng.IntN(100); {
		case pick < 10:
			if err = w.revoke(ctx, h); err == nil {
				revoked++
				live[i], err = w.add(ctx, rng)
			}
			delete(overlaps, h)
		case pick < 20:
			overlap := 24 * time.Hour
			if overlaps[h]++; overlaps[h]%6 == 0 {
				overlap = 0
			}
			err = w.rotate(ctx, h, overlap)
			rotated++
		case pick < 22 && len(forgets) > 0:
			c := forgets[0]
			forgets = forgets[1:]
			c.forgetting.Store(true)
			if _, err = w.admin.Forget(ctx, vehicle.ID(c.vid)); err == nil {
				c.forgotten.Store(true)
			}
		case !g.all: // all vehicles are no list to change
			// Not one that will be forgotten: that cannot be granted again.
			c := w.cars[rng.IntN(carsOfAKind*(len(kinds)-2))]
			names := []vehicle.ID{vehicle.ID(c.vid)}
			if g.vids[c.vid] {
				err = w.regrant(ctx, h, nil, names)
			} else {
				err = w.regrant(ctx, h, names, nil)
			}
			granted++
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	w.a.Figure("meanwhile: vehicles granted to a token, or taken away", float64(granted), "")
	w.a.Figure("meanwhile: tokens revoked, and others issued", float64(revoked), "")
	w.a.Figure("meanwhile: tokens rotated", float64(rotated), "")
	w.a.Figure("meanwhile: vehicles forgotten", float64(len(w.forgets)-len(forgets)), "")
	return nil
}

// add issues one more token that may be changed, and has it asked with.
func (w *world) add(ctx context.Context, rng *rand.Rand) (*holder, error) {
	h := &holder{mutable: true}
	g, names := w.grant(rng)
	if err := w.issue(ctx, h, g, names); err != nil {
		return h, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders = append(w.holders, h)
	return h, nil
}
