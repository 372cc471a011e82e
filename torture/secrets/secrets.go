// Package secrets is the row of the torture that gives the service keys and tokens
// in every place where somebody might put one, and looks whether any turns up
// where it must not.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"carstate/torture/row"
)

// Row is the search for secrets.
var Row = row.Row{
	Number: 10,
	Name:   "secrets",
	Title:  "Secrets that must not turn up",
	Promise: "A key or a token stands nowhere but in the hand that it was given to: in no log, metric, trace, answer, redirect, file or backup. What is kept of it is its hash. " +
		"A vid stands in no log, metric, trace, audit or receipt, and neither does a hash of it that anybody could make.",
	How: fmt.Sprintf(`A node runs with everything on that it can tell of itself: its log at debug, an access log, traces of every request to a collector. It is given %d secrets: the admin key,
operators', sources' and developers' keys that count, that were rotated, removed, revoked, replaced, that expired, that lack the operation or are over their rate, that were never issued, that are cut off. Each of them is sent

- to the query listener in %d requests: good ones, wrong methods, paths and versions, in names, values and every header, twice, badly encoded, in heads that are too long or end early, to the documentation;
- to ingest, as a key and inside telemetry, over HTTP and over MQTT 3.1.1 and 5 (password, user, client, will, topic, payload, filter);
- to the admin API in %d calls, as a key, in the path and in bodies of the wrong form, and to the console: login, logout, pages and forms;
- to the commands: as arguments, in the environment, in configuration files with errors, `+"`serve --check`"+`, NATS and OTLP addresses with passwords, files of the wrong kind, `+"`replay`, `simulate`, `query`, `backup`, `restore`"+`.
  There are %d command lines. A token, a source's key, the admin key and one more secret that is drawn go into all of them, each of the others into %d that are drawn.

One more, the key of the collector, stands in the node's environment, goes to the collector alone and is searched for with the others.

Whatever comes back is searched, and after that the log, standard output, the access log, the metrics, the traces, the audit, receipts, the backup, the command line of the process, and, once the node has ended, every
file of its data directory but admin.key, which is made to hold one. Any 12 characters in a row count, as they are, in base64 wherever it begins, in hexadecimal and percent-encoded.

Offered are the requests, the connections by MQTT and the commands, and acknowledged those of them that something came back to. Whether telemetry is kept is not looked at here, so that nothing can count as lost.

A command or a form of the console that can succeed and never does is a finding, too: it has not been where a secret could stand.

It does not look into the process's memory or environment, nor into the shell history of whoever types a token as an argument.`, given, len(queries), len(calls), len(commands), typedOthers),
	Counts: "rounds",
	CI:     1,
	Long:   50,
	Found: []string{
		"Whoever gave a token or key in place of a name (of a developer, a source or an operator) had it stored, listed and written into the audit: such names are refused now.",
		"The console's login page kept the path that was asked for, and its forms what was typed, also where that was a secret: it is left out now. So is one that `serve --check` met in place of an address.",
	},
	Controls: []row.Control{
		{Defect: "logs-token", Says: "logs the request target of a query, and hides no secret in its log", By: []string{"wrong: a token as it is stands in the log"}},
		{Defect: "logs-vehicle", Says: "logs the vehicle of a sample that it takes in", By: []string{"wrong: a vid as it is stands in the log"}},
		{Defect: "stores-token", Says: "stores a new token beside its hash", By: []string{"wrong: a token as it is stands in the data directory, in *"}},
		{Defect: "echoes-token", Says: "repeats a refused token in the error", By: []string{"wrong: * as it is stands in the answers of the query listener"}},
	},
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) error {
	var searched int64
	texts := 0
	places := make(map[string]bool)
	for n := range a.Count {
		r := &round{
			a: a, rng: rand.New(rand.NewPCG(a.Seed, uint64(n))), dir: filepath.Join(a.Dir, fmt.Sprint(n)),
			secrets: newCanaries(), names: newCanaries(), places: places, traced: make(map[string]bool), done: make(map[string]int),
		}
		if err := r.run(ctx); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		searched += r.searched
		texts += r.texts
	}
	a.Figure("searched", float64(searched)/1e6, "MB")
	a.Figure("answers, files and other texts that were searched", float64(texts), "")
	a.Figure("sorts of places", float64(len(places)+1), "") // the data directory
	return nil
}

func (r *round) run(ctx context.Context) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	err := r.start(ctx)
	defer r.collector.Close()
	if r.node != nil {
		defer r.node.Kill()
	}
	for _, part := range []func(context.Context) error{r.issue, r.feed, r.publish, r.ask, r.operate, r.browse, r.typeCommands, r.forget, r.settle} {
		if err != nil || ctx.Err() != nil {
			return err
		}
		err = part(ctx)
	}
	if never := r.missing(); err == nil && ctx.Err() == nil && len(never) > 0 {
		r.a.Wrong("these never succeeded, so the row says nothing about them: %s", strings.Join(never, ", "))
	}
	return err
}
