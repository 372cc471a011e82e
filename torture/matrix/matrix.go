// Package matrix is a row (one test) of the torture. It checks the authorisation of queries: a
// token must not obtain an answer about anything that it does not cover, and the time until an
// answer must not show whether a vehicle exists.
package matrix

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"carstate/bench/gobench"
	"carstate/bench/must"
	"carstate/torture/row"
)

// inCI is the minimum number of triples that `make torture` asks. A triple is a token, an operation
// and a vehicle.
const inCI = 100_000

//go:embed row.md.tmpl
var prose string

// Parts of the findings by which the row catches its controls.
const (
	notGranted  = `wrong: a token, *, a vehicle that is not granted`
	wantUnknown = `, want "Carstate-Reason: unknown"`
)

// Row is the row of the authorisation matrix.
var Row = row.Row{
	Number: 11,
	Name:   "matrix",
	Title:  "Who is answered what",
	Text:   prose,
	Fields: map[string]any{"Batch": batch, "Rounds": rounds, "Aim": aim, "Detectable": detectable},
	Counts: "triples",
	CI:     inCI,
	Long:   3_000_000,
	Controls: []row.Control{
		{Defect: "grants-unchecked", Says: "answers for every vehicle, without a check of the grant", By: []string{
			notGranted + ` and known: answered "Last-Modified: *"` + wantUnknown,
			notGranted + ` and stale: answered "Carstate-Reason: stale"` + wantUnknown,
			notGranted + ` and not_driving: answered "Carstate-Reason: not_driving"` + wantUnknown,
		}, Count: 20_000},
		{Defect: "revoked-counts", Says: "still answers tokens that were revoked",
			By: []string{`wrong: a *token, *: answered *, want "HTTP/1.1 401 Unauthorized"`}, Count: 50_000},
		{Defect: "forbidden-told",
			Says: "gives another reason for a vehicle that is not granted than for one that is unknown",
			By: []string{`wrong: a *token, *, a vehicle that is not granted and *: answered "Carstate-Reason: stale"` +
				wantUnknown}, Count: 20_000},
		{Defect: "slow-forbidden", Says: "hashes the name of a vehicle that is not granted thirty times (2 µs)",
			By: []string{"missed: the answer about a vehicle that reports and is not granted takes longer by (median) is *",
				"missed: the answer about one that neither exists nor is granted takes longer by (median) is *"}, Count: 1_000},
	},
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) error {
	machine(ctx, a)
	timing(ctx, a)
	return nil
}

// perCheck is the approximate number of triples in one random sequence of the test.
const perCheck = 4_000

// wrong matches a finding in the output of the test.
var wrong = regexp.MustCompile(`(?m)failed after \d+ tests: wrong: (.*)$`)

// machine runs TestMatrix of internal/query, a randomized test, against the binary.
func machine(ctx context.Context, a *row.Attempt) {
	test, counts := filepath.Join(a.Dir, "query.test"), filepath.Join(a.Dir, "counts.json")
	must.Do(gobench.Build(ctx, "..", "./internal/query", test))
	cmd := exec.CommandContext(ctx, test, "-test.run=^TestMatrix$", "-test.timeout=0", "-rapid.nofailfile",
		"-rapid.shrinktime=5s",
		"-rapid.checks="+strconv.Itoa(max(1, a.Count/perCheck)), "-rapid.seed="+strconv.FormatUint(a.Seed, 10),
		"-matrix.binary="+a.Binary, "-matrix.counts="+counts)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with the node that it started
	cmd.Env = append(os.Environ(), "TMPDIR="+a.Dir)
	out, err := cmd.CombinedOutput()
	if found := wrong.FindSubmatch(out); found != nil {
		a.Logf("%s", out)
		a.Wrong("%s", found[1])
	} else if err != nil {
		must.Fail("TestMatrix: %w: %s", err, bytes.TrimSpace(out))
	}
	text := must.Get(os.ReadFile(counts))
	var did struct{ Asked, Served, Granted, Revoked, Rotated, Forgotten, During int }
	must.Do(json.Unmarshal(text, &did))
	a.Offered(did.Asked)
	a.Acknowledged(did.Served)
	for _, x := range []struct {
		what string
		n    int
	}{
		{"vehicles granted to a token, or removed from it", did.Granted}, {"tokens revoked", did.Revoked},
		{"tokens rotated", did.Rotated}, {"vehicles forgotten", did.Forgotten},
		{"queries asked while a change was in progress", did.During},
	} {
		a.Figure(x.what, float64(x.n), "")
		if x.n == 0 && a.Count >= inCI && ctx.Err() == nil {
			a.Wrong("no %s: the row says nothing about them", x.what)
		}
	}
	must.Do(ctx.Err())
}
