package query

import (
	"context"
	"fmt"
	"path/filepath"

	"example.org/carstate/bench/report"
)

// size is the number of vehicles and of tokens in a table.
type size struct{ vehicles, tokens int }

func (s size) String() string {
	tokens := "1 token"
	if s.tokens > 1 {
		tokens = report.Count(s.tokens) + " tokens"
	}
	return report.Count(s.vehicles) + " vehicles, " + tokens
}

// compareSizes measures only the query server, with tables of growing size. Each size has a process
// of its own. All processes run at the same time, and each is measured in turn.
func (f *field) compareSizes(ctx context.Context) {
	vehicles := []int{1000, 100_000, 1_000_000, 10_000_000}
	tokens := []int{1, 1000, 100_000}
	if f.Quick {
		vehicles = []int{1000, 100_000, 1_000_000}
	}
	var sizes []size
	for _, n := range vehicles {
		sizes = append(sizes, size{n, 1})
	}
	const many = 100_000 // vehicles in the tables with growing numbers of tokens
	for _, n := range tokens[1:] {
		sizes = append(sizes, size{many, n})
	}

	for i, s := range sizes {
		f.Logf("filling a table: %s", s)
		targets := filepath.Join(f.Dir, fmt.Sprintf("targets-%d", i))
		f.startSelf(ctx, s.String(), targets, "table", "-targets", targets,
			"-vehicles", fmt.Sprint(s.vehicles), "-tokens", fmt.Sprint(s.tokens))
	}
	all := f.rounds(ctx)
	for i, s := range sizes {
		f.Add(s.String(), "server CPU a request", "µs", "query server alone, table filled synthetically",
			pick(all[i], func(c cost) float64 { return c.cpu })...)
	}
	last := len(vehicles) - 1
	f.AtMost(aimGrowth, self, fmt.Sprintf("CPU with %s vehicles, over 1 k", report.Count(vehicles[last])), "×", "",
		over(all[last], all[0])...)
	f.AtMost(aimGrowth, self, "CPU with 100 k tokens, over 1", "×", "", over(all[len(sizes)-1], all[1])...)
}
