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
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"carstate/bench/report"
	"carstate/torture/defects"
	"carstate/torture/reliability"
	"carstate/torture/row"
)

// job is what a child process is to do: one attempt at one row.
type job struct {
	Row    string
	Seed   uint64
	Count  int
	Binary string
	Dir    string
	Defect string
}

// builds are the programs of an attempt: the carstate under test, and the torture, which
// has the same defect if the row tries the product in its own process.
type builds struct{ carstate, torture string }

// run is the command. What goes on meanwhile is told on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(stderr)
	names := flags.String("rows", rowNames(), "do only these `rows`; of "+allNames())
	long := flags.Bool("long", false, "do as much as it takes hours for")
	count := flags.String("count", "", "how much of a row to do, by `ROW=N`, such as kill=1000,power=200")
	seed := flags.Uint64("seed", 0, "the `seed` of all that is random (0: a new one, printed)")
	controls := flags.Bool("controls", true, "also run the broken builds that the rows must see")
	dir := flags.String("dir", "", "`directory` for scratch files, on a disk (beside this program, or in /var/tmp)")
	docs := flags.String("docs", "../docs", "`directory` in which reliability.md is written")
	render := flags.Bool("render", false, "torture nothing: write the document again from the last results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	given, err := counts(*count)
	if err != nil {
		return err
	}
	document, err := reliability.Load(*docs)
	if err != nil {
		return err
	}
	if *render {
		return document.Save(*docs, rows)
	}
	began := time.Now()
	for *seed == 0 {
		*seed = rand.Uint64() >> 12 // so that JavaScript's numbers hold it too
	}
	lacks := make(map[string]error)
	for _, r := range chosen {
		if r.Needs == nil {
			continue
		}
		err := r.Needs()
		if err != nil && len(chosen) == 1 {
			return fmt.Errorf("row %s: %w", r.Name, err)
		}
		lacks[r.Name] = err
	}
	scratch, err := makeScratch(*dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	built, err := build(ctx, scratch)
	if err != nil {
		return err
	}
	machine, err := report.Machine(scratch)
	if err != nil {
		return err
	}
	described, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		described = []byte("unknown")
	}

	fmt.Fprintf(stderr, "seed %d\n", *seed)
	whole := reliability.Whole{Machine: machine, Version: strings.TrimSpace(string(described)), At: began.UTC().Truncate(time.Second), Seed: *seed}
	var failed []string
	for _, r := range chosen {
		n := r.CI
		if *long {
			n = r.Long
		}
		if given[r.Name] > 0 {
			n = given[r.Name]
		}
		done := reliability.Done{Row: r.Name, Machine: machine, Version: whole.Version, At: time.Now().UTC().Truncate(time.Second), Seed: *seed, Count: n}
		if err := lacks[r.Name]; err != nil {
			done.Outcome.NotDone(err)
		} else {
			done.Outcome = do(ctx, built.torture, job{Row: r.Name, Seed: *seed, Count: n, Binary: built.carstate}, limitOf(r, n), scratch, stderr)
		}
		done.Took = time.Since(done.At)
		if ctx.Err() != nil && !done.Outcome.Found() {
			return ctx.Err()
		}
		if !done.Outcome.Passed() {
			failed = append(failed, r.Name)
			// What was found is kept, whatever becomes of the rest.
			document.Replace(done)
			if err := document.Save(*docs, rows); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if *controls && (done.Outcome.Undone == "" || done.Outcome.Found()) {
			for _, c := range r.Controls {
				broken, err := buildBroken(ctx, filepath.Join(scratch, c.Defect), r, c.Defect)
				if err != nil {
					return err
				}
				caught, err := control(ctx, broken, r, c, *seed, n, scratch, stderr)
				if err = errors.Join(err, os.RemoveAll(filepath.Dir(broken.carstate))); err != nil {
					return err
				}
				if !caught.Caught {
					failed = append(failed, r.Name+" with "+c.Defect)
				}
				done.Controls = append(done.Controls, caught)
			}
		}
		document.Replace(done)
		whole.Add(done)
		// A row that was done is kept, whatever becomes of the next.
		if err := document.Save(*docs, rows); err != nil {
			return err
		}
		fmt.Fprintln(stdout, done.Line())
	}
	if *controls && *count == "" && !*long && *names == rowNames() {
		whole.Took, whole.Failed = time.Since(began), failed
		document.Whole = &whole
		if err := document.Save(*docs, rows); err != nil {
			return err
		}
		fmt.Fprintln(stdout, &whole)
	}
	if len(failed) > 0 {
		return fmt.Errorf("seed %d: these rows found something, could not be done, or did not see their control: %s", *seed, strings.Join(failed, ", "))
	}
	return nil
}

// control runs a row against a broken build and reports whether it saw that.
func control(ctx context.Context, built builds, r row.Row, c row.Control, seed uint64, n int, scratch string, stderr io.Writer) (reliability.Control, error) {
	if c.Count > 0 {
		n = min(n, c.Count)
	}
	began := time.Now()
	o := do(ctx, built.torture, job{Row: r.Name, Seed: seed, Count: n, Binary: built.carstate, Defect: c.Defect}, limitOf(r, n), scratch, stderr)
	if ctx.Err() != nil {
		return reliability.Control{}, ctx.Err()
	}
	// That it could not be done, or that something else was found, is no proof that
	// the row sees the defect.
	result := reliability.Control{Defect: c.Defect, Caught: o.CaughtBy != "", By: o.CaughtBy, Took: time.Since(began)}
	if !result.Caught && len(o.Findings) > 0 {
		result.By = o.Findings[0]
	}
	return result, nil
}

// ciLimit is how long an attempt of as much as `make torture` does may take. It is
// many times what it takes: what goes on longer hangs.
const ciLimit = 15 * time.Minute

// limitOf is how long an attempt at n of a row may take.
func limitOf(r row.Row, n int) time.Duration {
	return ciLimit * time.Duration(max(1, (n+r.CI-1)/r.CI))
}

// do does one attempt in a process of its own, so that neither memory nor a
// defect outlives it, and ends it if it takes longer than the limit.
func do(ctx context.Context, torture string, j job, limit time.Duration, scratch string, stderr io.Writer) (o row.Outcome) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := child(limited, torture, j, scratch, stderr)
	out = bytes.ReplaceAll(out, []byte(scratch), []byte("SCRATCH")) // the document need not say where
	if len(out) > 0 {
		err = errors.Join(err, json.Unmarshal(out, &o))
	} else if err == nil {
		err = errors.New("the attempt says nothing")
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it was not done after %s and was ended", limit)
	}
	if err != nil {
		o.NotDone(err)
	}
	return o
}

// child runs the process of an attempt and returns what it prints.
func child(ctx context.Context, torture string, j job, scratch string, stderr io.Writer) (out []byte, err error) {
	if j.Dir, err = os.MkdirTemp(scratch, j.Row+"-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(j.Dir)
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, torture, "attempt", string(text))
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends what it started
	cmd.WaitDelay = 2 * time.Minute                                          // more than a node gets that is asked to end
	return cmd.Output()
}

// attempt is the child: it does a job and prints the outcome. What was found before
// an error counts, and so does an error alone.
func attempt(ctx context.Context, text string, stdout io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fmt.Errorf("the job is not readable: %w", err)
	}
	chosen, err := choose(j.Row)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := j.Row
	if j.Defect != "" {
		prefix += " with " + j.Defect
	}
	control := chosen[0].Control(j.Defect)
	if control == nil && j.Defect != "" {
		return fmt.Errorf("row %s has no control %q", j.Row, j.Defect)
	}
	a := &row.Attempt{
		Seed: j.Seed, Count: j.Count, Binary: j.Binary, Dir: j.Dir, Control: control, Stop: cancel,
		Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, prefix+": "+format+"\n", args...) },
	}
	err = errors.Join(chosen[0].Run(running, a), ctx.Err())
	o := a.Outcome()
	if err != nil && o.CaughtBy == "" { // a control that was caught ends early, as it should
		a.Logf("ended early: %v", err)
		o.NotDone(err)
	}
	return json.NewEncoder(stdout).Encode(o)
}

// build makes carstate as people run it. The torture that tries it is this program.
func build(ctx context.Context, scratch string) (b builds, err error) {
	b.carstate = filepath.Join(scratch, "carstate")
	if b.torture, err = os.Executable(); err != nil {
		return b, err
	}
	return b, goBuild(ctx, "..", "./cmd/carstate", b.carstate)
}

// buildBroken makes the programs with a defect, in dir.
func buildBroken(ctx context.Context, dir string, r row.Row, defect string) (b builds, err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return b, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return b, err
	}
	overlay, err := defects.Overlay(root, defect, dir)
	if err != nil {
		return b, err
	}
	b.carstate = filepath.Join(dir, "carstate")
	// The version says what it is, so that it is never taken for a build to run.
	if err := goBuild(ctx, root, "./cmd/carstate", b.carstate, "-overlay", overlay, "-ldflags", "-s -w -X main.version=broken-"+defect); err != nil {
		return b, err
	}
	if !r.InProcess {
		b.torture, err = os.Executable()
		return b, err
	}
	b.torture = filepath.Join(dir, "torture")
	return b, goBuild(ctx, filepath.Join(root, "torture"), ".", b.torture, "-overlay", overlay)
}

// goBuild builds a program from the package pkg of the module in dir.
func goBuild(ctx context.Context, dir, pkg, to string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: run it in the directory torture\n%s", err, out)
	}
	return nil
}
