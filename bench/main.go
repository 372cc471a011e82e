// Command bench measures carstate side by side with what an expert would use instead, on one
// machine. Run it with `make bench`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/bench/gobench"
	"example.org/carstate/bench/must"
	"example.org/carstate/bench/query"
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/bench/sample"
	"example.org/carstate/bench/scale"
	"example.org/carstate/bench/vehicle"
	"example.org/carstate/internal/test/nodeprocess"
)

var parts = []struct {
	name string
	run  func(context.Context, *report.Part) error
}{
	{"query", query.Run},
	{"vehicle", vehicle.Run},
	{"restart", restart.Run},
	{"scale", scale.Run},
	{"sample", sample.Run},
}

const allParts = "query,vehicle,restart,scale,sample"

func main() {
	// Peers and generators in Go run as processes of this program.
	if len(os.Args) > 1 && os.Args[1] == "self" {
		if err := query.Self(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	defer must.Catch(&err)
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "a short run, as a test; its figures are rough")
	names := flags.String("parts", allParts, "measure only these `parts`")
	dir := flags.String("dir", "", "`directory` for scratch files, on the disk to be measured (a temporary one)")
	docs := flags.String("docs", "../docs", "`directory` in which performance/results.json is written")
	must.Do(flags.Parse(args))
	document := must.Get(report.Load(*docs))
	chosen := strings.Split(*names, ",")
	for _, name := range chosen {
		if !strings.Contains(","+allParts+",", ","+name+",") {
			must.Fail("there is no part %q: choose from %s", name, allParts)
		}
	}
	rounds := 5
	if *quick {
		rounds = 1
	}

	scratch := must.Get(os.MkdirTemp(*dir, "carstate-bench-"))
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, "carstate")
	must.Do(nodeprocess.Build(ctx, "..", "", binary))
	version := gobench.Version(ctx)
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		own := filepath.Join(scratch, p.name)
		must.Do(os.Mkdir(own, 0o700))
		machine := must.Get(report.Machine(own))
		begin := time.Now()
		measured := &report.Part{
			Name: p.name, Quick: *quick, Rounds: rounds, Dir: own, Binary: binary,
			Logf: func(format string, args ...any) { fmt.Fprintf(stderr, p.name+": "+format+"\n", args...) },
		}
		if err := must.Caught(func() { must.Do(p.run(ctx, measured), ctx.Err()) }); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		// The next part may fail.
		must.Do(document.Save(report.Run{
			Part: p.name, Machine: machine, Version: version,
			At: begin, Took: time.Since(begin), Rounds: rounds, Quick: *quick,
		}, measured), os.RemoveAll(own), measured.Print(stdout))
	}
	return nil
}
