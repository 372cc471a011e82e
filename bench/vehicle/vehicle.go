// Package vehicle measures one vehicle in the fleet table.
package vehicle

import (
	"context"
	"strings"

	"example.org/carstate/bench/gobench"
	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
)

func Run(ctx context.Context, p *report.Part) error {
	sizes := []int{100_000, 1_000_000, 10_000_000}
	if p.Quick {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		subject := report.Count(n) + " vehicles"
		name := "Table/vehicles=" + strings.ReplaceAll(report.Count(n), " ", "")
		found := must.Get(gobench.Run(ctx, "internal/fleet", name+"$", min(p.Rounds, 3)))
		for _, m := range []struct {
			unit, name, shown string
			aim               float64 // at 10 M vehicles
			remark            string
		}{
			{"still-p99.9-ms", "reads of a table that stays as it is, p99.9", "ms", 0,
				"while another one grows: the delays of the machine itself"},
			{"B/vehicle", "memory a vehicle", "B", 64, "heap in use after a collection, over vehicles"},
			{"collection-ms", "CPU of a full collection", "ms", 20, "beyond that of an empty heap"},
			{"read-p99.9-ms", "reads while it grows, p99.9", "ms", 10, "one every 10 µs, counted from when it was due"},
			{"read-max-ms", "reads while it grows, longest", "ms", 0, "with other load on the machine"},
			{"%left", "memory left when nine tenths are forgotten", "%", 0, "of what all took"},
		} {
			if n != 10_000_000 {
				m.aim = 0
			}
			p.AtMost(m.aim, "carstate", m.name+", "+subject, m.shown, m.remark, found[name][m.unit]...)
		}
	}
	return nil
}
