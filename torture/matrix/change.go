package matrix

import (
	"context"
	"math/rand/v2"
	"time"

	"carstate/internal/vehicle"
)

// change changes tokens and forgets vehicles, one after the other and without a
// pause, until the context ends.
func (w *world) change(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.a.Seed, 1000))
	var live []*holder
	overlaps := make(map[*holder]int)
	for _, h := range w.holders {
		if h.mutable && !h.sandbox {
			live = append(live, h)
		}
	}
	forgets, n := w.forgets, 0
	for ; ctx.Err() == nil && len(live) > 2; n++ {
		i := rng.IntN(len(live))
		h := live[i]
		g := h.life(len(h.lives) - 1) // nobody else appends
		var err error
		switch pick := rng.IntN(100); {
		case pick < 2:
			err = w.revoke(ctx, h)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		case pick < 10:
			overlap := 24 * time.Hour
			if overlaps[h]++; overlaps[h]%6 == 0 {
				overlap = 0
			}
			err = w.rotate(ctx, h, overlap)
		case pick < 13 && len(forgets) > 0:
			c := forgets[0]
			forgets = forgets[1:]
			c.forgetting.Store(true)
			if _, err = w.admin.Forget(ctx, vehicle.ID(c.vid)); err == nil {
				c.forgotten.Store(true)
			}
		case !g.all:
			// Not one that will be forgotten: that cannot be granted again.
			c := w.cars[rng.IntN(carsOfAKind*(len(kinds)-2))]
			names := []vehicle.ID{vehicle.ID(c.vid)}
			if g.vids[c.vid] {
				err = w.regrant(ctx, h, nil, names)
			} else {
				err = w.regrant(ctx, h, names, nil)
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	w.a.Figure("changes of tokens and vehicles meanwhile", float64(n), "")
	return nil
}
