package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"carstate/internal/access"
	"carstate/internal/lab/score"
	"carstate/internal/vehicle"
)

// evaluation is what `evaluate --json` prints.
type evaluation struct {
	Files []fileResult `json:"files"`
	Total fileResult   `json:"total"`
}

// fileResult is how the rules did on one drive, or on all of them.
type fileResult struct {
	File string `json:"file,omitempty"` // its name, with as many folders as tell it from others; none in the total
	// Seconds driven: gaps of more than 75 s are left out.
	Seconds          float64      `json:"seconds"`
	States           stateSeconds `json:"seconds_in_state"`
	Anomalies        []anomaly    `json:"throttle_anomalies"`
	*score.Agreement              // with the labels of a log that has some
}

// stateSeconds is the time driven in each state. State 0 is no verdict.
type stateSeconds struct {
	None   float64 `json:"0"`
	Normal float64 `json:"1"`
	Slow   float64 `json:"2"`
	Jam    float64 `json:"3"`
}

func (s *stateSeconds) add(state vehicle.DrivingState, d time.Duration) {
	sum := [...]*float64{&s.None, &s.Normal, &s.Slow, &s.Jam}[state]
	*sum = milliseconds(*sum + d.Seconds())
}

// milliseconds rounds to the resolution of event time, so that sums stay plain.
func milliseconds(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// anomaly is a time in which the throttle verdict was "anomaly".
type anomaly struct {
	At     float64 `json:"at_seconds"` // since the file's first row
	For    float64 `json:"for_seconds"`
	Reason string  `json:"reason"`
	since  time.Duration
}

// label counts one labelled row.
func (r *fileResult) label(truth, verdict vehicle.DrivingState) {
	if r.Agreement == nil {
		r.Agreement = new(score.Agreement)
	}
	r.Add(truth, verdict)
}

// add appends a file's result and adds it to the total.
func (e *evaluation) add(r fileResult) {
	if r.Anomalies == nil {
		r.Anomalies = []anomaly{}
	}
	e.Files = append(e.Files, r)
	t := &e.Total
	t.Seconds = milliseconds(t.Seconds + r.Seconds)
	t.States.None = milliseconds(t.States.None + r.States.None)
	t.States.Normal = milliseconds(t.States.Normal + r.States.Normal)
	t.States.Slow = milliseconds(t.States.Slow + r.States.Slow)
	t.States.Jam = milliseconds(t.States.Jam + r.States.Jam)
	t.Anomalies = append(t.Anomalies, r.Anomalies...)
	if t.Anomalies == nil {
		t.Anomalies = []anomaly{}
	}
	if r.Agreement == nil {
		return
	}
	if t.Agreement == nil {
		t.Agreement = new(score.Agreement)
	}
	t.Join(r.Agreement)
}

func (e *evaluation) writeJSON(w io.Writer) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the evaluation: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// writeTables prints the evaluation for people.
func (e *evaluation) writeTables(w io.Writer) error {
	t := &tables{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.states(e)
	t.anomalies(e)
	if a := e.Total.Agreement; a != nil {
		t.confusion(a)
		t.files(e)
	}
	t.flush()
	return t.err
}

// tables writes tables until the first error.
type tables struct {
	w   *tabwriter.Writer
	err error
}

func (t *tables) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

// flush ends a table, so that the next one has columns of its own.
func (t *tables) flush() {
	if t.err == nil {
		t.err = t.w.Flush()
	}
}

func (t *tables) states(e *evaluation) {
	t.line("drive\tminutes\tnormal\tslow\tjam\tno verdict\tanomalies")
	row := func(name string, r *fileResult) {
		of := func(seconds float64) string {
			if r.Seconds == 0 {
				return "-"
			}
			return fmt.Sprintf("%.1f %%", 100*seconds/r.Seconds)
		}
		t.line("%s\t%.1f\t%s\t%s\t%s\t%s\t%d", name, r.Seconds/60, of(r.States.Normal), of(r.States.Slow), of(r.States.Jam), of(r.States.None), len(r.Anomalies))
	}
	for i := range e.Files {
		row(access.Printable(e.Files[i].File), &e.Files[i])
	}
	if len(e.Files) > 1 {
		row("all", &e.Total)
	}
	t.flush()
}

func (t *tables) anomalies(e *evaluation) {
	if len(e.Total.Anomalies) == 0 {
		t.line("\nNo throttle anomaly.")
		t.flush()
		return
	}
	t.line("\nthrottle anomaly in\tat\tfor\treason")
	for i := range e.Files {
		for _, a := range e.Files[i].Anomalies {
			t.line("%s\t%.1f s\t%.1f s\t%s", access.Printable(e.Files[i].File), a.At, a.For, a.Reason)
		}
	}
	t.flush()
}

var stateColumns = [...]string{"none", "normal", "slow", "jam"}

// confusion prints the confusion matrix and the scores of each state.
func (t *tables) confusion(a *score.Agreement) {
	t.line("\nlabel \\ verdict\tnone\tnormal\tslow\tjam\tprecision\trecall\tF1")
	for truth, row := range a.Confusion {
		s := a.Of(vehicle.DrivingState(truth + 1))
		t.line("%s\t%d\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f", stateColumns[truth+1], row[0], row[1], row[2], row[3], s.Precision(), s.Recall(), s.F1())
	}
	t.flush()
	t.line("\n%d labelled rows, accuracy %.3f, macro-F1 %.3f", a.Rows, a.Accuracy, a.MacroF1)
	t.flush()
}

// files prints the scores of each labelled drive, if there are several.
func (t *tables) files(e *evaluation) {
	labelled := 0
	for i := range e.Files {
		if e.Files[i].Agreement != nil {
			labelled++
		}
	}
	if labelled < 2 {
		return
	}
	t.line("\nlabelled drive\trows\taccuracy\tnormal F1\tslow F1\tjam F1\tmacro-F1")
	for i := range e.Files {
		a := e.Files[i].Agreement
		if a == nil {
			continue
		}
		f1 := func(s vehicle.DrivingState) float64 { return a.Of(s).F1() }
		t.line("%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f", access.Printable(e.Files[i].File), a.Rows, a.Accuracy,
			f1(vehicle.NormalDriving), f1(vehicle.SlowDriving), f1(vehicle.TrafficJam), a.MacroF1)
	}
}
