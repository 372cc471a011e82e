package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/lab/evaluate"
	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/term"
)

type evaluateCommand struct {
	fleetFlags
	formatFlags
	Files []string `arg:"" optional:"" name:"file" help:"Recorded drives, plain or gzip: CSV, NDJSON or GPX. The format of known loggers is recognized."`
	JSON  bool     `name:"json" help:"Print JSON instead of tables."`
	Plot  string   `placeholder:"FILE.svg" help:"Draw each drive's speed over time, with the verdicts in the background, ${more_plot}"`
}

type fleetFlags struct {
	// env:"-" because CARSTATE_FLEET, of demo, is a number.
	Fleet            string        `env:"-" placeholder:"FCD" help:"Evaluate a whole fleet on roads: a table (csv or csv.gz) ${more_fleet}"`
	Truth            string        `placeholder:"LABELS" help:"Labels of the traffic around the fleet's cars: a table ${more_truth}"`
	Learn            []string      `sep:"none" placeholder:"FCD" help:"Another day on the same roads, from which the rules learn first, as from the day before. ${more_learn}"`
	Every            time.Duration `placeholder:"DURATION" help:"Interval at which the cars of the fleet send, instead of every reading of the file."`
	Share            float64       `default:"1" placeholder:"N" help:"Fraction of the cars that send, such as 0.2 (${default}); labels of the others are ignored."`
	WithoutPositions bool          `help:"Cars of the fleet send no positions."`
}

func (c *evaluateCommand) validate() error {
	switch f := &c.fleetFlags; {
	case f.Fleet == "" && (f.Truth != "" || f.Learn != nil || f.Every != 0 || f.Share != 1 || f.WithoutPositions):
		return usageError("--truth, --learn, --every, --share and --without-positions need a fleet: give --fleet FCD")
	case f.Fleet == "" && len(c.Files) == 0:
		return usageError("expected recorded drives, or a fleet: --fleet FCD --truth LABELS")
	case f.Fleet == "":
		return nil
	case len(c.Files) > 0:
		return usageError("--fleet and recorded drives are mutually exclusive: leave out either")
	case f.Truth == "":
		return usageError("--fleet needs the labels of its cars: --truth LABELS")
	case f.Every < 0:
		return usageError("--every must be a duration such as 5s")
	case !(f.Share > 0 && f.Share <= 1):
		return usageError("--share must be above 0 and at most 1, such as 0.2")
	case c.Plot != "" && f.WithoutPositions:
		return usageError("--plot draws a map, which needs positions: leave out --without-positions")
	case c.formatFlags.given():
		return usageError("--format is for recorded drives: leave out --fleet")
	}
	return nil
}

func (c *evaluateCommand) Run(ctx context.Context, w streams) error {
	if err := c.validate(); err != nil {
		return err
	}
	for _, name := range slices.Concat([]string{c.Fleet, c.Truth}, c.Learn, c.Files) {
		if c.Plot != "" && sameFile(name, c.Plot) {
			return usageError("--plot: %s is one of the files to read", c.Plot)
		}
	}
	if c.Fleet != "" {
		return c.evaluateFleet(ctx, w)
	}
	as, err := c.logFormat()
	if err != nil {
		return err
	}
	var all evaluate.Drives
	var tracks []evaluate.Track
	short := evaluate.ShortNames(c.Files)
	for i, name := range c.Files {
		d, err := drivelog.Open(ctx, name, as)
		if err != nil {
			return err
		}
		for _, warning := range d.Warnings() {
			fmt.Fprintf(w.err, "%s: %s\n", access.Printable(name), warning)
		}
		if track := all.Add(short[i], d); c.Plot != "" {
			tracks = append(tracks, track)
		}
	}
	if c.Plot != "" {
		if err := writePlot(c.Plot, evaluate.Plot(tracks)); err != nil {
			return err
		}
	}
	if c.JSON {
		return json.NewEncoder(w.out).Encode(&all)
	}
	return all.WriteTables(w.out)
}

func (c *evaluateCommand) evaluateFleet(ctx context.Context, w streams) error {
	total := 0
	var days []*fcd.Fleet // the one to evaluate, and then those to learn from
	for _, name := range slices.Concat([]string{c.Fleet}, c.Learn) {
		day, err := fcd.Open(ctx, name)
		if err != nil {
			return fleetError(err)
		}
		day.WithoutPositions = c.WithoutPositions
		total += day.Readings
		days = append(days, day)
	}
	labels, err := fcd.ReadLabels(ctx, c.Truth)
	if err != nil {
		return fleetError(err)
	}
	progress := term.NewProgress(w.err, total, "readings")
	var roads road.Map
	config := evaluate.FleetConfig{Fold: roads.Fold, Every: c.Every, Share: c.Share, Progress: progress.Add}
	var picture evaluate.Picture
	if c.Plot != "" {
		config.Judged = picture.Add
	}
	result, err := evaluate.Fleet(ctx, config, days[0], days[1:], labels)
	progress.End(err == nil)
	if err != nil {
		return fleetError(err)
	}
	if c.Plot != "" {
		if err := writePlot(c.Plot, picture.Map(filepath.Base(c.Fleet))); err != nil {
			return err
		}
	}
	result.Stretches = roads.Len()
	if c.JSON {
		return json.NewEncoder(w.out).Encode(map[string]any{"fleet": result.Report()})
	}
	return result.WriteTables(w.out)
}

func fleetError(err error) error { return fmt.Errorf("the fleet cannot be evaluated: %w", err) }

func writePlot(name, svg string) error {
	if err := os.WriteFile(name, []byte(svg), 0o644); err != nil {
		return fmt.Errorf("the plot cannot be written: %w", err)
	}
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
