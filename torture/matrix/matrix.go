// Package matrix is the row of the torture that asks whether anybody is answered
// what they may not know: tokens of every sort, vehicles of every sort, both
// operations, against a model of the contract that shares no code with the
// service.
package matrix

import (
	"context"
	"errors"

	"carstate/torture/row"
)

// inCI is how many triples `make torture` asks.
const inCI = 100_000

// Row is the authorisation matrix.
var Row = row.Row{
	Number: 11,
	Name:   "matrix",
	Title:  "Who is answered what",
	Promise: "A token gets exactly the answers that it was granted, also while grants change, tokens are revoked and rotated and vehicles are forgotten. " +
		"A vehicle that is not granted cannot be told from one that there is not: not by a byte, and not by the time that the answer takes.",
	How: `A node runs with 160 tokens (one or both operations, all vehicles, a list, an emptied list; some expired, expiring, revoked, rotated with and without
an overlap, or of the sandbox) and 142 vehicles (with an answer to both operations, to one, not driving, stale, forgotten, never heard of, and the sandbox's).
Eight connections ask about random triples of token, vehicle and operation, each as another caller; a twentieth show no token that was ever issued, a twentieth something that only looks like one
(cut off, altered, a source's key, an operator's, a token's ID). Meanwhile eight others
change half of the tokens without a pause and to the end: three of four changes grant a vehicle or take it away, others revoke a token and issue another one, rotate one, or forget a vehicle.

Every answer is compared with a model of the contract: status, body, the names of all headers and their order, the reason, Last-Modified. A change counts from when it was acknowledged; only for a
question that was under way meanwhile both answers are right. Every answer about an unknown vehicle is compared with the first one to the byte, but for Date, X-Request-Id and the vid itself.
Tokens with a rate, and guesses from one address, are tried by themselves.

Time is measured on one connection, 16 pipelined questions at a go, so that the way there and back does not hide the answer. In each of 6,000 rounds, in random order, come vehicles that are granted and
never reported, that report and are not granted, and that are neither; the rounds' differences give the median and its bound without any assumption about how times are spread. The bound must be within 3 % of an answer's time; the control counts as seen only where the
medians differ by more than 10 %, which noise does not do.

It does not see differences below that bound, nor what several callers together might measure in a processor's caches.`,
	Counts: "triples",
	CI:     inCI,
	Long:   3_000_000,
	Controls: []row.Control{
		{Defect: "grants-unchecked", Says: "answers for every vehicle, whatever was granted", By: []string{"wrong: a token, *, a vehicle that is not granted and known: *"}, Count: 5_000},
		{Defect: "revoked-counts", Says: "goes on answering tokens that were revoked", By: []string{"wrong: a token, *: answered 200, want 401"}, Count: 20_000},
		{Defect: "forbidden-told", Says: "gives another reason for a vehicle that is not granted than for one that is unknown",
			By: []string{`wrong: a token, *, a vehicle that is not granted and *: the reason is "stale", want "unknown"`}, Count: 5_000},
		{Defect: "slow-forbidden", Says: "hashes the name of a vehicle that is not granted, which takes 1 µs",
			By: []string{"missed: the answer about a vehicle that reports and is not granted takes longer by (median) is *", "missed: the answer about one that is neither there nor granted takes longer by (median) is *"}, Count: 1_000},
	},
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) error {
	w, err := build(ctx, a)
	if err != nil {
		return err
	}
	defer w.node.Kill()
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return w.askAll(ctx, a.Count) },
		w.limited, w.guesses, w.timing,
	} {
		if err := part(ctx); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return w.node.Stop()
}
