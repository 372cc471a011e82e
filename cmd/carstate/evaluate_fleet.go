package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"carstate/internal/access"
	"carstate/internal/lab/fcd"
	"carstate/internal/lab/fleeteval"
	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// fleetFlags say which fleet is evaluated, and how much of it.
type fleetFlags struct {
	// No environment twin: CARSTATE_FLEET is there for demo, and is a number.
	Fleet            string        `env:"-" placeholder:"FCD" help:"Evaluate a whole fleet on roads: a table (csv or csv.gz) with the columns vehicle, time (s), latitude, longitude and speed (km/h), ordered by time."`
	Truth            string        `placeholder:"LABELS" help:"How traffic around the fleet's cars moved: a table with the columns vehicle, time (s), truth (normal, slow, jam) and sure (0, 1)."`
	Learn            string        `placeholder:"FCD" help:"Another day on the same roads, which the rules see first, as the day before."`
	Every            time.Duration `placeholder:"DURATION" help:"Cars of the fleet send so often, and not every reading of the file."`
	Share            float64       `default:"1" placeholder:"N" help:"So many of the cars send, such as 0.2 (${default}); the others have no labels either."`
	WithoutPositions bool          `help:"Cars of the fleet do not send where they are."`
}

// validate refuses flags that do not go together.
func (f *fleetFlags) validate(drives []string, plot bool) error {
	switch {
	case f.Fleet == "" && (f.Truth != "" || f.Learn != "" || f.Every != 0 || f.Share != 1 || f.WithoutPositions):
		return usageError("--truth, --learn, --every, --share and --without-positions are of a fleet: name it with --fleet FCD")
	case f.Fleet == "" && len(drives) == 0:
		return usageError("expected recorded drives, or a fleet: --fleet FCD --truth LABELS")
	case f.Fleet == "":
		return nil
	case len(drives) > 0:
		return usageError("--fleet evaluates one fleet and no drives: leave out either")
	case f.Truth == "":
		return usageError("--fleet needs the labels of its cars: --truth LABELS")
	case f.Every < 0:
		return usageError("--every must be a duration such as 5s")
	case !(f.Share > 0 && f.Share <= 1):
		return usageError("--share must be above 0 and at most 1, such as 0.2")
	case plot && f.WithoutPositions:
		return usageError("--plot draws a map, which needs positions: leave out --without-positions")
	}
	return nil
}

// evaluateFleet runs the rules over a fleet.
func (c *evaluateCommand) evaluateFleet(ctx context.Context, w streams) error {
	fleet, err := fcd.Open(ctx, c.Fleet)
	if err != nil {
		return fleetError(err)
	}
	labels, err := fcd.ReadLabels(ctx, c.Truth)
	if err != nil {
		return fleetError(err)
	}
	fleet.WithoutPositions = c.WithoutPositions
	total := fleet.Readings
	var learn *fcd.Fleet
	if c.Learn != "" {
		if learn, err = fcd.Open(ctx, c.Learn); err != nil {
			return fleetError(err)
		}
		learn.WithoutPositions = c.WithoutPositions
		total += learn.Readings
	}
	progress := newProgressOf(w.err, total, "readings")
	var roads road.Map
	config := fleeteval.Config{Observe: roads.Observe, Every: c.Every, Share: c.Share, MaxAge: evaluateMaxAge, Progress: progress.add}
	var picture fleetPicture
	if c.Plot != "" {
		config.Judged = picture.add
	}
	result, err := fleeteval.Run(ctx, config, fleet, learn, labels)
	progress.add(total - progress.done)
	progress.end(err == nil)
	if err != nil {
		return fleetError(err)
	}
	if c.Plot != "" {
		at, spots := picture.worst()
		title := fmt.Sprintf("%s, %s after its beginning, when most places were jammed", access.Printable(filepath.Base(c.Fleet)), at)
		if err := writePlot(c.Plot, plotMap(title, spots)); err != nil {
			return err
		}
	}
	report := newFleetReport(&result)
	report.Stretches = roads.Len()
	if c.JSON {
		return report.writeJSON(w.out)
	}
	return writeFleetTables(w.out, &result, &report)
}

// fleetError says that it is a fleet's file that could not be read.
func fleetError(err error) error { return fmt.Errorf("the fleet cannot be evaluated: %w", err) }

// fleetReport is what `evaluate --fleet --json` prints.
type fleetReport struct {
	Vehicles  int `json:"vehicles"`
	Readings  int `json:"readings"`
	Stretches int `json:"stretches"` // of road that the rules know at the end
	// Confusion counts labels: by truth normal, slow, jam; then by verdict: none,
	// normal, slow, jam. Sure counts those that are sure.
	Confusion [3][4]int `json:"confusion"`
	Sure      [3][4]int `json:"sure"`
	MacroF1   float64   `json:"macro_f1"`
	F1        stateF1   `json:"f1"`
}

// stateF1 is the F1 of each state.
type stateF1 struct {
	Normal float64 `json:"normal"`
	Slow   float64 `json:"slow"`
	Jam    float64 `json:"jam"`
}

func newFleetReport(r *fleeteval.Result) fleetReport {
	return fleetReport{
		Vehicles: r.Vehicles, Readings: r.Readings,
		Confusion: r.All.Confusion, Sure: r.Sure.Confusion, MacroF1: r.All.MacroF1,
		F1: stateF1{r.All.Of(vehicle.NormalDriving).F1(), r.All.Of(vehicle.SlowDriving).F1(), r.All.Of(vehicle.TrafficJam).F1()},
	}
}

func (r *fleetReport) writeJSON(w io.Writer) error {
	b, err := json.Marshal(map[string]*fleetReport{"fleet": r})
	if err != nil {
		return fmt.Errorf("write the evaluation: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// writeFleetTables prints the evaluation for people.
func writeFleetTables(w io.Writer, r *fleeteval.Result, report *fleetReport) error {
	t := &tables{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.line("vehicles\treadings\tstretches")
	t.line("%d\t%d\t%d", report.Vehicles, report.Readings, report.Stretches)
	t.flush()
	t.confusion(&r.All)
	if r.Sure.Rows > 0 {
		t.line("\nOf these, the labels that are sure:")
		t.flush()
		t.confusion(&r.Sure)
	}
	t.flush()
	return t.err
}
