// Package hostile is a row (one test) of the torture, with malicious clients. Some send requests
// that parsers may misunderstand, some are slow on purpose, and some are cars that send what no
// real car would send.
package hostile

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// fullCount is the smallest count of the row at which all slow clients and hostile cars take part.
// For a smaller count, their number is proportionally smaller.
const fullCount = 100_000

//go:embed row.md.tmpl
var prose string

// Row is row 6 of the torture.
var Row = row.Row{
	Number: 6,
	Name:   "hostile",
	Title:  "Hostile clients",
	Text:   prose,
	Counts: "answers to hostile requests",
	CI:     fullCount,
	Long:   10 * fullCount,
	Controls: []row.Control{
		{Defect: "overlooks-transfer-encoding",
			Says: "does not look at Transfer-Encoding, so that a request can hide behind another",
			By: []string{"wrong: conversation * of talker *: the answer is 2* (wanted 400): *",
				"wrong: conversation * of talker *: the answer is 4* (wanted 400): *"}, Count: 4000},
		{Defect: "echoes-input", Says: "repeats the path in the answer that refuses it",
			By:    []string{"wrong: conversation * of talker *: the answer is not the envelope of a refusal (wanted 404): *"},
			Count: 4000},
		{Defect: "no-read-deadline", Says: "waits without a limit for the rest of a request",
			By: []string{"wrong: a client that sends *, and then little, is not disconnected: *"}, Count: 1000},
		{Defect: "answers-subscribe", Says: "lets a car subscribe",
			By: []string{"wrong: a hostile car: a car may subscribe: *"}, Count: 1000},
	},
	Needs: needs,
	Run:   run,
}

// files is the number of descriptors that this process needs. The node needs as many.
const files = 17_500

func needs() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < files {
		return fmt.Errorf("a process may open only %d files: allow it %d with 'ulimit -n %d'", limit.Max, files, files)
	}
	for program, pkg := range map[string]string{"slowhttptest": "slowhttptest", "nginx": "nginx-light",
		"haproxy": "haproxy", "chrt": "util-linux", "taskset": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: run 'apt-get install %s' as root", program, pkg)
		}
	}
	return nil
}

func run(ctx context.Context, a *row.Attempt) (err error) {
	w := must.Get(newWorld(ctx, a))
	defer w.Kill()
	for _, part := range []struct {
		name string
		do   func(context.Context, *world)
	}{{"requests", hostileRequests}, {"dawdling", dawdle}, {"proxies", behindProxies}, {"telemetry", telemetry},
		{"slow clients", slow}} {
		began := time.Now()
		part.do(ctx, w)
		must.Do(ctx.Err())
		a.Logf("%s took %s", part.name, time.Since(began).Round(time.Millisecond))
	}
	lines, bytes := w.log.said()
	a.Figure("log", float64(lines), "lines")
	a.AtMost("log", float64(bytes)/(1<<20), "MiB", 1)
	select {
	case <-w.Ended():
		a.Wrong("the process has ended; its last output: %.300q", w.Log()[max(0, len(w.Log())-300):])
		return nil
	default:
	}
	if err := w.Stop(); err != nil {
		if _, ok := errors.AsType[*nodeprocess.EndedError](err); !ok {
			return err
		}
		a.Wrong("it does not stop in order: %v", err)
	}
	return nil
}

func hostileRequests(ctx context.Context, w *world) {
	requests(ctx, w.attempt, w.contract, w.writer, w.Address(nodeprocess.Query), w.attempt.Count)
}

// share scales n in proportion to the size of this attempt. The result is at least the parameter
// least.
func share(a *row.Attempt, n, least int) int {
	return max(least, min(n, n*a.Count/fullCount))
}
