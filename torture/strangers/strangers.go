// Package strangers is the row of the torture in which a great many callers come
// that nobody knows: with tokens, vehicles, keys and names that do not exist, from
// as many addresses. It looks whether the service keeps anything of them.
package strangers

import (
	"context"
	"fmt"

	"carstate/torture/row"
)

// Row is row 7 of the torture.
var Row = row.Row{
	Number:  7,
	Name:    "strangers",
	Title:   "Strangers in great numbers",
	Promise: "However many unknown tokens, vehicles, keys, names and addresses come by, each is refused as the contract says, and the service keeps next to nothing of them: no memory, no series of metrics.",
	How: `Each stranger comes from an address of its own, which a trusted proxy tells in ` + "`X-Forwarded-For`" + ` (half of them IPv4, half an IPv6 network each).
By turns it asks for a known vehicle with a token that has the right form and does not exist, with one that is malformed, and with none; and for a vehicle
that does not exist, or is not granted, with a token that counts. The count is of tokens of the right form and vehicles that do not exist, and two fifths of all who come. Every answer is checked: status, ` + "`WWW-Authenticate`" + ` as RFC 6750 has it, and body.

Ten times as many go through the query server in the torture's own process, on connections that are memory, a hundredth of which come from
addresses of their own; the heap in use after a garbage collection is compared before and after. The others go over HTTP, pipelined, to a node in a
process of its own. The same node then gets unknown keys, and vehicles that are not the source's, at the ingest listener (a twentieth as
many), unknown names and keys at the MQTT listener and unknown keys at the admin listener (a hundredth each), from loopback addresses of their own.
Its resident memory and its series of metrics are compared before and after; "before" is after the first few of every kind, because a process
grows when it does something for the first time. At the end an address that offers too many wrong tokens must still get 429, and a right token from it an answer.

The heap of the node cannot be collected from outside, so its figure is resident memory, with the garbage of the moment in it.`,
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
