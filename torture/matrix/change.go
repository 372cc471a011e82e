package matrix

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// changers change tokens at once: each change waits for the disk, and together they
// wait hardly longer than one.
const changers = 8

// changes is what was changed.
type changes struct {
	granted, revoked, rotated, forgotten atomic.Int64

	mu      sync.Mutex
	forgets []*car // still to be forgotten
}

// judge tells what was changed. A run as long as CI's in which something never was
// does not show that answers follow it.
func (c *changes) judge(a *row.Attempt) {
	for _, x := range []struct {
		what string
		n    *atomic.Int64
	}{
		{"vehicles granted to a token, or taken away", &c.granted}, {"tokens revoked, and others issued", &c.revoked},
		{"tokens rotated", &c.rotated}, {"vehicles forgotten", &c.forgotten},
	} {
		a.Figure("meanwhile: "+x.what, float64(x.n.Load()), "")
		if x.n.Load() == 0 && a.Count >= inCI {
			a.Wrong("meanwhile no %s: the row says nothing about them", x.what)
		}
	}
}

// next is the next vehicle to forget, nil if there is none left.
func (c *changes) next() (v *car) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.forgets) > 0 {
		v, c.forgets = c.forgets[0], c.forgets[1:]
	}
	return v
}

// change changes tokens and forgets vehicles without a pause until the context ends.
func (w *world) change(ctx context.Context) error {
	var live [changers][]*holder
	next := 0
	for _, h := range w.holders {
		if h.mutable && !h.sandbox {
			live[next%changers] = append(live[next%changers], h)
			next++
		}
	}
	did := changes{forgets: w.forgets}
	var changing sync.WaitGroup
	var errs [changers]error
	for n := range changers {
		changing.Go(func() {
			rng := rand.New(rand.NewPCG(w.a.Seed, uint64(1000+n)))
			errs[n] = w.changeSome(ctx, rng, live[n], &did)
		})
	}
	changing.Wait()
	did.judge(w.a)
	return errors.Join(errs[:]...)
}

// changeSome changes tokens that nobody else does. For one that is revoked another
// is issued, so that there always are as many to change.
func (w *world) changeSome(ctx context.Context, rng *rand.Rand, live []*holder, did *changes) error {
	overlaps := make(map[*holder]int)
	for ctx.Err() == nil {
		i := rng.IntN(len(live))
		h := live[i]
		g := h.life(len(h.lives) - 1) // nobody else appends
		var err error
		var count *atomic.Int64
		switch pick := rng.IntN(100); {
		case pick < 10:
			count = &did.revoked
			if err = w.revoke(ctx, h); err == nil {
				live[i], err = w.add(ctx, rng)
			}
			delete(overlaps, h)
		case pick < 20:
			count = &did.rotated
			overlap := 24 * time.Hour
			if overlaps[h]++; overlaps[h]%6 == 0 {
				overlap = 0
			}
			err = w.rotate(ctx, h, overlap)
		case pick < 22:
			c := did.next()
			if c == nil {
				continue
			}
			count = &did.forgotten
			c.forgetting.Store(true)
			if _, err = w.admin.Forget(ctx, vehicle.ID(c.vid)); err == nil {
				c.forgotten.Store(true)
			}
		case g.all:
			continue // that is no list to change
		default:
			count = &did.granted
			c := w.lasting()[rng.IntN(len(w.lasting()))]
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
		if err == nil {
			count.Add(1)
		}
	}
	return nil
}

// lasting are cars that nobody forgets: one that was cannot be granted again.
func (w *world) lasting() []*car { return w.cars[:carsOfAKind*(len(kinds)-2)] }

// add issues one more token that may be changed, and has it asked with.
func (w *world) add(ctx context.Context, rng *rand.Rand) (*holder, error) {
	h := &holder{mutable: true}
	g, names := w.grant(rng, w.lasting())
	if err := w.issue(ctx, h, g, names); err != nil {
		return h, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders = append(w.holders, h)
	return h, nil
}
