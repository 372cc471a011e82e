package node

import (
	"context"
	"time"

	"carstate/internal/admin"
	"carstate/internal/admin/console"
	"carstate/internal/netguard"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// console returns the web pages for operators, which the admin listener serves.
func (n *Node) console(operations *ops.Operations) admin.Console {
	c := console.Config{
		Ops: operations, Monitor: n.monitor, Known: netguard.HoldUntilAnswered, Recent: n.recent,
		Ready: n.health.ready, Writable: n.engine.Writable,
		Registry: n.registry, Log: n.config.Log, Roads: n.roads, Secure: n.config.speaksTLS(AdminAddr),
		Version: n.config.Version,
	}
	if n.ports[QueryAddr] != nil {
		c.QueryURL = n.URL(QueryAddr)
		if !n.config.NoDocs {
			c.DocsURL = c.QueryURL + "/"
		}
	}
	return console.New(c)
}

// recent returns the newest samples of a vehicle that the store still has. It reads backwards from
// the newest sample, and stops when it has found all samples, or at least as many as the parameter
// most says.
//
// The first result has all samples of the vehicle that were stored at the returned time or later.
// The bool is true if the store has no earlier sample of the vehicle.
func (n *Node) recent(ctx context.Context, id vehicle.ID, most int) ([]vehicle.Sample, time.Time, bool, error) {
	r, err := n.engine.Recent(ctx, id, most)
	return r.Samples, r.Since, r.All, err
}
