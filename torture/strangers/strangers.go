// Package strangers is the row of the torture in which a great many callers come
// that nobody knows: with tokens, vehicles, keys and names that do not exist, from
// as many addresses. It looks whether the service keeps anything of them.
package strangers

import (
	"context"
	_ "embed"
	"fmt"

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
		{Defect: "unbounded-strangers", Says: "never forgets an address to which a token was refused", By: []string{"missed: *: memory that is left of them is *"}, Count: 20_000},
		{Defect: "series-by-vehicle", Says: "counts queries by vehicle", By: []string{"wrong: *: there were * series of metrics, then *"}, Count: 20_000},
	},
	InProcess: true,
	Run:       run,
}

// maxGrowth is how much memory all strangers together may take.
const maxGrowth = 16 << 20

func run(ctx context.Context, a *row.Attempt) error {
	// Of the strangers, by turns, these many have what is counted.
	const counted = 2
	all := a.Count * manners / counted
	if err := inProcess(ctx, a, 10*all); err != nil || ctx.Err() != nil {
		return err
	}
	return overNetwork(ctx, a, all)
}

// grew judges what a process had before and after the strangers came.
func grew(a *row.Attempt, where string, bytes int64, seriesBefore, seriesAfter int) {
	if seriesBefore != seriesAfter {
		a.Wrong("%s: there were %d series of metrics, then %d", where, seriesBefore, seriesAfter)
	}
	a.Aimed(where+": memory that is left of them", float64(bytes)/(1<<20), "MiB", "≤ 16 MiB", bytes <= maxGrowth)
	a.Figure(where+": series of metrics before and after", float64(seriesAfter), "")
}

// tally tells the attempt how many came and were answered.
func tally(a *row.Attempt, what string, asked, answered int) error {
	a.Offered(asked)
	a.Acknowledged(answered)
	if asked != answered {
		return fmt.Errorf("%s: %d of %d were answered", what, answered, asked)
	}
	return nil
}
