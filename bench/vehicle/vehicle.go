// Package vehicle measures what one vehicle costs in the fleet table, which holds the
// answers to queries. The benchmark itself is in internal/fleet.
package vehicle

import (
	"context"

	"carstate/bench/gobench"
	"carstate/bench/must"
	"carstate/bench/report"
)

// Run measures the part vehicle: the cost of one vehicle in the fleet table.
func Run(ctx context.Context, o report.Options, r *report.Results) error {
	sizes := []int{100_000, 1_000_000, 10_000_000}
	if o.Quick {
		sizes = sizes[:1]
	}
	memory := report.Line{Label: "carstate"}
	for _, n := range sizes {
		subject := report.Count(n) + " vehicles"
		name := "Table/vehicles=" + map[int]string{100_000: "100k", 1_000_000: "1M", 10_000_000: "10M"}[n]
		found := must.Get(gobench.Run(ctx, "internal/fleet", name+"$", min(o.Rounds, 3)))
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
			value := r.Measure(report.Figure{Part: "vehicle", Subject: "carstate", Name: m.name + ", " + subject, Unit: m.shown,
				Remark: m.remark, AtMost: m.aim}, found[name][m.unit]...)
			o.Logf("%s: %s: %.4g %s", subject, m.name, value, m.shown)
			if m.unit == "B/vehicle" {
				memory.X, memory.Y = append(memory.X, float64(n)), append(memory.Y, value)
			}
		}
	}
	r.Draw(report.Plot{
		Part: "vehicle", File: "vehicle-memory", Title: "Memory of a vehicle's answer", XAxis: "vehicles",
		YAxis: "bytes a vehicle", LogX: true,
		Lines: []report.Line{memory},
	})
	return nil
}
