// Package vehicle measures what a vehicle costs in the table of answers, beside
// what else one could keep it in.
package vehicle

import (
	"context"
	"fmt"
	"slices"

	"carstate/bench/report"
)

const part = "vehicle"

// Run measures.
func Run(ctx context.Context, o report.Options, r *report.Results) error {
	sizes := []int{100_000, 1_000_000, 10_000_000}
	if o.Quick {
		sizes = []int{2_000, 20_000}
	}
	lines := make([]report.Line, len(subjects))
	for _, n := range sizes {
		bytes := make([][]float64, len(subjects))
		collection, left := make([][]float64, len(subjects)), make([][]float64, len(subjects))
		p999, most := make([][]float64, len(subjects)), make([][]float64, len(subjects))
		var still []float64
		for range max(1, min(o.Rounds, 3)) {
			for i, s := range subjects {
				m, err := measure(ctx, s, n)
				if err != nil {
					return err
				}
				o.Logf("%s, %s vehicles: %.1f bytes each, a collection %v of CPU, reads p99.9 %v, most %v; %.0f %% is left of it when a tenth is",
					s.name, report.Count(n), m.bytes, m.collection, m.reads.quantile(0.999), m.reads.most, 100*m.left)
				bytes[i] = append(bytes[i], m.bytes)
				collection[i] = append(collection[i], m.collection.Seconds()*1e3)
				left[i] = append(left[i], 100*m.left)
				p999[i] = append(p999[i], m.reads.quantile(0.999).Seconds()*1e3)
				most[i] = append(most[i], m.reads.most.Seconds()*1e3)
			}
			machine := beside(ctx, subjects[0], n)
			o.Logf("%s vehicles: reads of a table that stays as it is p99.9 %v", report.Count(n), machine.quantile(0.999))
			still = append(still, machine.quantile(0.999).Seconds()*1e3)
		}
		largest := n == 10_000_000
		add(r, subjects[0].name, "reads of a table that stays as it is, p99.9, "+report.Count(n)+" vehicles", still, "ms", false, 0, "beside one that grows: what the machine itself keeps them waiting")
		for i, s := range subjects {
			ours := largest && i == 0
			at := ", " + report.Count(n) + " vehicles"
			add(r, s.name, "memory a vehicle"+at, bytes[i], "B", ours, 64, "heap in use after a collection, over vehicles")
			add(r, s.name, "CPU of a full collection"+at, collection[i], "ms", ours, 20, "beyond that of an empty heap")
			add(r, s.name, "reads while it grows, p99.9"+at, p999[i], "ms", ours, 10, "one every 10 µs, counted from when it was due")
			add(r, s.name, "reads while it grows, longest"+at, most[i], "ms", false, 0, "with whatever else the machine did")
			add(r, s.name, "memory left when nine tenths are forgotten"+at, left[i], "%", false, 0, "of what all took")
			lines[i].Label = s.name
			lines[i].X, lines[i].Y = append(lines[i].X, float64(n)), append(lines[i].Y, median(bytes[i]))
		}
	}
	stored, err := redisLines(ctx, o, r, sizes)
	if err != nil {
		return err
	}
	r.Draw(report.Plot{
		Part: part, File: "vehicle-memory", Title: "Memory of a vehicle's answer", XAxis: "vehicles", YAxis: "bytes a vehicle", LogX: true,
		Lines: append(lines, stored...),
	})
	return nil
}

// redisLines asks Redis what a vehicle takes. It takes as much whatever their
// number, so the largest size is left out.
func redisLines(ctx context.Context, o report.Options, r *report.Results, sizes []int) ([]report.Line, error) {
	server, err := startRedis(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	var lines []report.Line
	for _, kind := range []struct {
		name  string
		words func(int) []string
	}{{"Redis, string key", asString}, {"Redis, hash", asHash}} {
		line := report.Line{Label: kind.name}
		for _, n := range sizes[:len(sizes)-1] {
			usage, err := server.memoryUsage(n, kind.words)
			if err != nil {
				return nil, err
			}
			o.Logf("%s, %s vehicles: %.0f bytes each", kind.name, report.Count(n), usage)
			add(r, kind.name, "memory a vehicle, "+report.Count(n)+" vehicles", []float64{usage}, "B", false, 0, "MEMORY USAGE of a key; the table of keys comes on top")
			line.X, line.Y = append(line.X, float64(n)), append(line.Y, usage)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func add(r *report.Results, subject, name string, values []float64, unit string, hasAim bool, aim float64, remark string) {
	f := report.Figure{Part: part, Subject: subject, Name: name, Value: median(values), Unit: unit, Remark: remark}
	if len(values) > 1 {
		f.Low, f.High = slices.Min(values), slices.Max(values)
	}
	if hasAim {
		met := f.Value <= aim
		f.Aim, f.Met = fmt.Sprintf("≤ %g %s", aim, unit), &met
	}
	r.Add(f)
}
