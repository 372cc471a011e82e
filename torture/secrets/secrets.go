// Package secrets is a row (one test) of the torture. It sends keys and tokens to every place of
// the service where a user might enter one, and checks that none appears where it must not.
package secrets

import (
	"context"
	"embed"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"carstate/bench/must"
	"carstate/torture/defects"
	"carstate/torture/row"
)

//go:embed row.md.tmpl queries.txt calls.txt bodies.txt heads.txt pages.txt logins.txt commands.txt
var files embed.FS

var prose = text("row.md.tmpl")

// Requests and command lines that contain secrets. TOKEN and {token} are replaced by a secret, VID
// and {vid} by the vehicle, and GOOD by the key of a source that may send.
var (
	queries = lines("queries.txt") // to the query listener; /D and /T are the two operations
	calls   = lines("calls.txt")   // to the admin listener: method, path, body
	bodies  = append(lines("bodies.txt"), "")
	heads   = lines("heads.txt")  // headers of requests to ingest
	logins  = lines("logins.txt") // forms that log in to the console
	pages   = lines("pages.txt")  // of the console: method, path, form
	// commands are command lines of carstate. NAME=VALUE is an environment variable.
	commands = lines("commands.txt")
)

func text(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(b)
}

// lines returns the lines of a file, with \r, \n and \x replaced as in Go's string literals.
func lines(name string) (all []string) {
	for line := range strings.Lines(text(name)) {
		s, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `"`, `\"`) + `"`)
		if err != nil {
			panic(err)
		}
		all = append(all, s)
	}
	return all
}

// Row is row 10 of the torture: a search for secrets in everything that the service writes.
var Row = row.Row{
	Number: 10, Name: "secrets", Title: "Secrets that must not turn up", Text: prose,
	Fields: map[string]any{"Given": given, "Queries": len(queries), "Calls": len(calls), "Commands": len(commands),
		"Others": typedOthers},
	Counts: "rounds", CI: 1, Long: 50,
	Controls: defects.Controls("secrets", "logs-token", "logs-vehicle", "stores-token", "echoes-token"),
	Run:      run,
}

func run(ctx context.Context, a *row.Attempt) {
	var searched int64
	texts := 0
	places := make(map[string]bool)
	for n := range a.Count {
		r := &round{
			a: a, rng: rand.New(rand.NewPCG(a.Seed, uint64(n))), dir: filepath.Join(a.Dir, fmt.Sprint(n)),
			secrets: newCanaries(), names: newCanaries(), places: places, traced: make(map[string]bool),
		}
		r.run(ctx)
		must.Do(ctx.Err())
		searched += r.searched
		texts += r.texts
	}
	a.Figure("searched", float64(searched)/1e6, "MB")
	a.Figure("answers, files and other texts that were searched", float64(texts), "")
	a.Figure("sorts of places", float64(len(places)+1), "") // one more for the data directory
}

func (r *round) run(ctx context.Context) {
	must.Do(os.MkdirAll(r.dir, 0o700))
	defer os.RemoveAll(r.dir)
	defer func() {
		r.collector.Close()
		if r.node != nil {
			r.node.Kill()
		}
	}()
	for _, part := range []func(context.Context){r.start, r.issue, r.feed, r.publish, r.ask, r.operate, r.browse,
		r.typeCommands, r.forget, r.settle} {
		part(ctx)
		must.Do(ctx.Err())
	}
	if never := r.missing(); len(never) > 0 {
		r.a.Wrong("these never succeeded, so the row says nothing about them: %s", strings.Join(never, ", "))
	}
}
