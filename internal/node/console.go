package node

import (
	"context"
	"time"

	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

func (n *Node) console(operations *ops.Operations) admin.Console {
	c := console.Config{
		Ops: operations, Monitor: n.monitor, Known: listen.Hold,
		Ready: n.health.ready, Writable: n.engine.Writable,
		Registry: n.registry, Log: n.config.Log, Roads: n.roads, Secure: n.config.speaksTLS(AdminAddr),
		Version: n.config.Version,
	}
	c.Recent = func(ctx context.Context, id vehicle.ID, most int) ([]vehicle.Sample, time.Time, bool, error) {
		r, err := n.engine.Recent(ctx, id, most)
		return r.Samples, r.Since, r.All, err
	}
	if n.ports[QueryAddr] != nil {
		c.QueryURL = n.URL(QueryAddr)
		if !n.config.NoDocs {
			c.DocsURL = c.QueryURL + "/"
		}
	}
	return console.New(c)
}
