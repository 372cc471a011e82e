package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"carstate/internal/access"
	"carstate/internal/lab/drivelog"
	"carstate/internal/vehicle"
)

type evaluateCommand struct {
	fleetFlags
	Files []string `arg:"" optional:"" name:"file" help:"Recorded drives, plain or gzip; the format is known by the header."`
	JSON  bool     `name:"json" help:"Print JSON instead of tables."`
	Plot  string   `placeholder:"FILE.svg" help:"Draw each drive's speed over time, with the verdicts behind it, on one page; of a fleet, the map at the time of most jams."`
}

// Help is shown by --help.
func (*evaluateCommand) Help() string {
	return `Runs the rules over recorded drives, offline, and prints how they did: how long
each drive was in each state, which throttle anomalies were found and why, and,
where a log has labels, how often the rules agree with them.

With --fleet, runs them over a whole fleet on roads, and compares what the service
would have answered at the time of each label with the label.

Example:
  carstate evaluate drive.csv.gz
  carstate evaluate --json --plot drives.svg drives/*.csv.gz
  carstate evaluate --fleet fcd.csv.gz --truth labels.csv.gz --learn learn.csv.gz --every 5s`
}

// Run evaluates the drives.
func (c *evaluateCommand) Run(ctx context.Context, w streams) error {
	if err := c.validate(c.Files, c.Plot != ""); err != nil {
		return err
	}
	for _, name := range append([]string{c.Fleet, c.Truth, c.Learn}, c.Files...) {
		if c.Plot != "" && sameFile(name, c.Plot) {
			return usageError("--plot: %s is one of the files to read", c.Plot)
		}
	}
	if c.Fleet != "" {
		return c.evaluateFleet(ctx, w)
	}
	var all evaluation
	var tracks []track
	short := shortNames(c.Files)
	for i, name := range c.Files {
		d, err := openDrive(ctx, name)
		if err != nil {
			return err
		}
		for _, warning := range d.Warnings() {
			fmt.Fprintf(w.err, "%s: %s\n", access.Printable(name), warning)
		}
		r, t := evaluate(short[i], d)
		all.add(r)
		if c.Plot != "" {
			tracks = append(tracks, t)
		}
	}
	if c.Plot != "" {
		if err := writePlot(c.Plot, plot(tracks)); err != nil {
			return err
		}
	}
	if c.JSON {
		return all.writeJSON(w.out)
	}
	return all.writeTables(w.out)
}

// sameFile reports whether two names are those of one file that exists.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

const (
	// drivenGap is the longest step between two rows that counts as time
	// driven. Longer ones are pauses: the rules take nothing from them either.
	drivenGap = 75 * time.Second
	// evaluateMaxAge is how old a verdict may be to count, as by default in
	// service.
	evaluateMaxAge = 5 * time.Minute
)

// evaluate runs the rules over one drive.
func evaluate(name string, d *drivelog.Drive) (fileResult, track) {
	start := d.Start
	if start.IsZero() {
		start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // any: only differences count
	}
	e := evaluator{result: fileResult{File: name}, track: track{name: access.Printable(name)}}
	for i := range d.Rows {
		e.row(vehicle.At(start), &d.Rows[i])
	}
	return e.end()
}

// evaluator folds a drive's rows.
type evaluator struct {
	state  vehicle.State
	result fileResult
	track  track

	seen    bool
	driven  time.Duration // up to the last row, pauses left out
	last    time.Duration // the last row's time, pauses included
	verdict vehicle.DrivingState
	anomaly *anomaly // the one that lasts, an element of result.Anomalies
}

func (e *evaluator) row(start vehicle.UnixMilli, r *drivelog.Row) {
	pause := false
	if step := r.At - e.last; e.seen && step <= drivenGap {
		e.result.States.add(e.verdict, step)
		e.driven += step
	} else if e.seen {
		pause = true
	}
	e.seen, e.last = true, r.At

	now := start.Add(r.At)
	e.state = vehicle.Observe(e.state, vehicle.Sample{Vehicle: "evaluated", Time: now, Readings: r.Readings})
	e.verdict = 0
	if v := e.state.Driving(); v.At(now, evaluateMaxAge) == vehicle.Answered {
		e.verdict = v.State
	}
	if r.Label != 0 {
		e.result.label(r.Label, e.verdict)
	}
	e.throttle(r.At)
	e.track.add(e.driven, pause, r, e.verdict, e.anomaly != nil)
}

// throttle notes where an anomaly begins and ends.
func (e *evaluator) throttle(at time.Duration) {
	v := e.state.Throttle()
	found := v.Time != 0 && v.System == vehicle.ThrottleAnomaly
	if e.anomaly != nil {
		e.anomaly.For = (at - e.anomaly.since).Seconds()
	}
	switch {
	case found && e.anomaly == nil:
		e.result.Anomalies = append(e.result.Anomalies, anomaly{At: at.Seconds(), Reason: ruleAndText(e.state.ExplainThrottle()), since: at})
		e.anomaly = &e.result.Anomalies[len(e.result.Anomalies)-1]
	case !found:
		e.anomaly = nil
	}
}

// ruleAndText is the rule behind a verdict, and what it found in which sensors.
func ruleAndText(x vehicle.Explanation) string { return x.Rule + ": " + x.Text }

func (e *evaluator) end() (fileResult, track) {
	e.result.Seconds = e.driven.Seconds()
	return e.result, e.track
}
