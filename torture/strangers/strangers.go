// Package strangers is a row (one test) of the torture, with very many unknown callers. Their
// tokens, vehicles, keys and names do not exist, and each caller has an address of its own. The row
// checks that the service keeps no data about them.
package strangers

import (
	"context"
	_ "embed"
	"time"

	"carstate/bench/must"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is row 7 of the torture.
var Row = row.Row{
	Number: 7,
	Name:   "strangers",
	Title:  "Strangers in great numbers",
	Text:   prose,
	Counts: "unknown tokens and vids over HTTP",
	CI:     1_000_000,
	Long:   10_000_000,
	Controls: []row.Control{
		{Defect: "unbounded-strangers", Says: "never removes an address that had a token refused",
			By: []string{"missed: memory used after them is *"}, Count: 200_000},
		{Defect: "series-by-vehicle", Says: "counts queries by vehicle",
			By: []string{"wrong: there were * series of metrics, then *"}, Count: 20_000},
	},
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) error {
	// counted is the number of kinds of strangers that are part of the row's count: those with
	// an unknown token, and those that query an unknown vehicle.
	const counted = 2
	strangers := a.Count * kinds / counted
	n := must.Get(a.Start(ctx, "--trusted-proxies", "127.0.0.0/8"))
	defer n.Kill()
	k := fill(ctx, n)
	// Measure twice: after the first few strangers of each kind, enough that every listener
	// sees some, and after all strangers.
	few := min(max(strangers/20, 4000), strangers/2)
	k.visits(ctx, a, 0, few)
	memory, series := k.size(ctx)
	began := time.Now()
	k.visits(ctx, a, few, strangers)
	a.Figure("duration of all strangers", time.Since(began).Seconds(), "s")
	memoryAfter, seriesAfter := k.size(ctx)
	if series != seriesAfter {
		a.Wrong("there were %d series of metrics, then %d", series, seriesAfter)
	}
	a.AtMost("memory used after them", float64(memoryAfter-memory)/(1<<20), "MiB", 16) // of all strangers together
	a.Figure("series of metrics before and after", float64(seriesAfter), "")
	k.checkAfterwards(ctx, a)
	return nil
}

// size returns the node's memory and its number of metric series.
func (k *known) size(ctx context.Context) (memory int64, series int) {
	m := must.Get(k.node.Metrics(ctx))
	return must.Get(k.node.Resident()), len(m)
}
