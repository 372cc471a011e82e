// Command torture breaks carstate on purpose and checks that it keeps its promises.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/bench/gobench"
	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 3 && os.Args[1] == "attempt" {
		err = attempt(ctx, os.Args[2], os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

type job struct {
	Row    string
	Seed   uint64
	Count  int
	Binary string
	Dir    string
	Defect string
}

type session struct {
	program string
	scratch string
	seed    uint64
	stderr  io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	defer must.Catch(&err)
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(stderr)
	chosenNames := flags.String("rows", names(false), "run only these `rows`; of "+names(true))
	count := flags.String("count", "", "the size of rows, by `ROW=N`, such as kill=1000,power=200")
	seed := flags.Uint64("seed", 0, "the `seed` of everything random (0: a new one, printed)")
	controls := flags.Bool("controls", true, "also run the broken builds that the rows must catch")
	dir := flags.String("dir", "/var/tmp", "`directory` for scratch files, on a disk")
	docs := flags.String("docs", "../docs", "`directory` in which reliability.json is written")
	must.Do(flags.Parse(args))
	chosen := must.Get(choose(*chosenNames))
	given := must.Get(counts(*count))
	results := must.Get(load(*docs))
	for *seed == 0 {
		*seed = rand.Uint64() >> 12 // few enough bits for JavaScript
	}
	scratch := must.Get(os.MkdirTemp(must.Get(filepath.Abs(*dir)), "carstate-torture-"))
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, "carstate")
	must.Do(nodeprocess.Build(ctx, "..", "", binary))
	s := &session{program: must.Get(os.Executable()), scratch: scratch, seed: *seed, stderr: stderr}
	machine, version := must.Get(report.Machine(scratch)), gobench.Version(ctx)
	fmt.Fprintf(stderr, "seed %d\n", *seed)
	var failed []string
	for _, r := range chosen {
		n, built := r.CI, binary
		if given[r.Name] > 0 {
			n = given[r.Name]
		}
		d := done{Row: r.Name, Machine: machine, Version: version, At: time.Now().UTC().Truncate(time.Second), Seed: *seed,
			Count: n}
		if r.Tests != "" {
			built = filepath.Join(scratch, "tests")
			must.Do(nodeprocess.Build(ctx, "..", r.Tests, built))
		}
		d.Outcome = s.do(ctx, job{Row: r.Name, Count: n, Binary: built}, limitOf(r, n))
		d.Took = time.Since(d.At)
		if ctx.Err() != nil && !d.Outcome.Found() {
			return ctx.Err()
		}
		if !d.Outcome.Passed() {
			failed = append(failed, r.Name)
			must.Do(results.save(d))
		}
		must.Do(ctx.Err())
		if *controls && (d.Outcome.Undone == "" || d.Outcome.Found()) {
			for _, c := range r.Controls {
				caught := s.control(ctx, r, c, n)
				if !caught.Caught {
					failed = append(failed, r.Name+" with "+c.Defect)
				}
				d.Controls = append(d.Controls, caught)
			}
		}
		must.Do(results.save(d))
		d.print(stdout, r.Counts)
	}
	if len(failed) > 0 {
		return fmt.Errorf("seed %d: these rows had findings, could not be completed, or did not catch a control: %s", *seed,
			strings.Join(failed, ", "))
	}
	return nil
}

func (s *session) control(ctx context.Context, r row.Row, c defects.Control, n int) control {
	root, dir := must.Get(filepath.Abs("..")), filepath.Join(s.scratch, c.Defect)
	must.Do(os.Mkdir(dir, 0o700))
	defer os.RemoveAll(dir)
	overlay, broken := must.Get(defects.Overlay(root, c.Defect, dir)), filepath.Join(dir, "carstate")
	// The version names the defect, so that nobody takes the binary for a usable build.
	must.Do(nodeprocess.Build(ctx, root, r.Tests, broken, "-overlay", overlay, "-ldflags",
		"-s -w -X main.version=broken-"+c.Defect))
	if c.Count > 0 {
		n = min(n, c.Count)
	}
	began := time.Now()
	o := s.do(ctx, job{Row: r.Name, Count: n, Binary: broken, Defect: c.Defect}, limitOf(r, n))
	must.Do(ctx.Err())
	return verdict(c, o, time.Since(began))
}

func verdict(c defects.Control, o row.Outcome, took time.Duration) control {
	v := control{Defect: c.Defect, Caught: o.CaughtBy != "", By: o.CaughtBy, Took: took}
	if !v.Caught && len(o.Findings) > 0 {
		v.By = o.Findings[0]
	}
	return v
}

// Only an attempt that hangs exceeds it.
func limitOf(r row.Row, n int) time.Duration {
	return 15 * time.Minute * time.Duration(max(1, (n+r.CI-1)/r.CI))
}

// In a new process, the memory or a defect of one attempt does not affect the next.
func (s *session) do(ctx context.Context, j job, limit time.Duration) (o row.Outcome) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out []byte
	err := must.Caught(func() {
		j.Dir, j.Seed = must.Get(os.MkdirTemp(s.scratch, j.Row+"-")), s.seed
		defer os.RemoveAll(j.Dir)
		cmd := exec.CommandContext(limited, s.program, "attempt", string(must.Get(json.Marshal(j))))
		cmd.Stderr = s.stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 2 * time.Minute // longer than a node has for an orderly stop
		var err error
		out, err = cmd.Output()
		must.Do(err)
	})
	out = bytes.ReplaceAll(out, []byte(s.scratch), []byte("SCRATCH"))
	if len(out) > 0 {
		err = errors.Join(err, json.Unmarshal(out, &o))
	} else if err == nil {
		err = errors.New("the attempt has no output")
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it was not done after %s and was stopped", limit)
	}
	if err != nil {
		o.NotDone(err)
	}
	return o
}

func attempt(ctx context.Context, text string, stdout io.Writer) (err error) {
	defer must.Catch(&err)
	var j job
	must.Do(json.Unmarshal([]byte(text), &j))
	r := must.Get(find(j.Row))
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := j.Row
	if j.Defect != "" {
		prefix += " with " + j.Defect
	}
	a := &row.Attempt{
		Seed: j.Seed, Count: j.Count, Binary: j.Binary, Dir: j.Dir, Control: r.Control(j.Defect), Stop: cancel,
		Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, prefix+": "+format+"\n", args...) },
	}
	err = errors.Join(must.Caught(func() { r.Run(running, a) }), ctx.Err())
	o := a.Outcome()
	if err != nil && o.CaughtBy == "" { // a control that was caught ends early
		a.Logf("ended early: %v", err)
		o.NotDone(err)
	}
	return json.NewEncoder(stdout).Encode(o)
}
