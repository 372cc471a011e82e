package soak

import "context"

// parts of the cars are held to the journal in turn, so that it costs as much
// whatever was done before.
const parts = 10

// hold holds the node to the newest acknowledged samples of one part of the cars,
// each time of another, while all goes on.
func (t *traffic) hold(ctx context.Context, i int) error {
	all := t.held.Vehicles()
	part := all[i%parts*len(all)/parts : (i%parts+1)*len(all)/parts]
	t.looked += len(part)
	return t.held.HoldVehicles(ctx, t.n, part)
}

// holdAll holds the node to those of all cars. Nothing is under way any more.
func (t *traffic) holdAll(ctx context.Context) error {
	all := t.held.Vehicles()
	t.looked += len(all)
	t.a.Figure("times that a car's newest acknowledged sample was looked for", float64(t.looked), "")
	return t.held.HoldVehicles(ctx, t.n, all)
}
