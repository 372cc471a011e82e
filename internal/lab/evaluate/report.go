package evaluate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/score"
)

// Drives is what `evaluate --json` prints.
type Drives struct {
	Files []fileResult `json:"files"`
	Total fileResult   `json:"total"`
}

type fileResult struct {
	File string `json:"file,omitempty"` // shortened by [ShortNames]; empty in the total
	// without pauses
	Seconds          float64      `json:"seconds"`
	States           stateSeconds `json:"seconds_in_state"`
	Anomalies        []anomaly    `json:"throttle_anomalies"`
	*score.Agreement              // if the log has labels
}

// stateSeconds is by state, 0 for no verdict.
type stateSeconds [4]float64

func (s *stateSeconds) add(state driving.State, seconds float64) {
	s[state] = milliseconds(s[state] + seconds)
}

func (s stateSeconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[int]float64{0: s[0], 1: s[1], 2: s[2], 3: s[3]})
}

func milliseconds(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

type anomaly struct {
	At     float64 `json:"at_seconds"` // since the file's first row
	For    float64 `json:"for_seconds"`
	Reason string  `json:"reason"`
	since  time.Duration
}

func (r *fileResult) label(truth, verdict driving.State) {
	if r.Agreement == nil {
		r.Agreement = new(score.Agreement)
	}
	r.Add(truth, verdict)
}

func (e *Drives) add(r fileResult) {
	e.Files = append(e.Files, r)
	t := &e.Total
	t.Seconds = milliseconds(t.Seconds + r.Seconds)
	for state, seconds := range r.States {
		t.States.add(driving.State(state), seconds)
	}
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

func (e *Drives) WriteTables(w io.Writer) error {
	t := score.NewTables(w)
	e.states(t)
	e.anomalies(t)
	if a := e.Total.Agreement; a != nil {
		t.Confusion(a)
		e.agreements(t)
	}
	return t.End()
}

func (e *Drives) states(t *score.Tables) {
	t.Line("drive\tminutes\tnormal\tslow\tjam\tno verdict\tanomalies")
	row := func(name string, r *fileResult) {
		of := func(seconds float64) string {
			if r.Seconds == 0 {
				return "-"
			}
			return fmt.Sprintf("%.1f %%", 100*seconds/r.Seconds)
		}
		t.Line("%s\t%.1f\t%s\t%s\t%s\t%s\t%d", name, r.Seconds/60, of(r.States[driving.Normal]),
			of(r.States[driving.Slow]), of(r.States[driving.Jam]), of(r.States[0]), len(r.Anomalies))
	}
	for i := range e.Files {
		row(access.Printable(e.Files[i].File), &e.Files[i])
	}
	if len(e.Files) > 1 {
		row("all", &e.Total)
	}
}

func (e *Drives) anomalies(t *score.Tables) {
	if len(e.Total.Anomalies) == 0 {
		t.Line("\nNo throttle anomaly.")
		return
	}
	t.Line("\nthrottle anomaly in\tat\tfor\treason")
	for i := range e.Files {
		for _, a := range e.Files[i].Anomalies {
			t.Line("%s\t%.1f s\t%.1f s\t%s", access.Printable(e.Files[i].File), a.At, a.For, a.Reason)
		}
	}
}

func (e *Drives) agreements(t *score.Tables) {
	labelled := slices.DeleteFunc(slices.Clone(e.Files), func(r fileResult) bool { return r.Agreement == nil })
	if len(labelled) < 2 {
		return
	}
	t.Line("\nlabelled drive\trows\taccuracy\tnormal F1\tslow F1\tjam F1\tmacro-F1")
	for _, r := range labelled {
		f1 := func(s driving.State) float64 { return r.Of(s).F1() }
		t.Line("%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f", access.Printable(r.File), r.Rows, r.Accuracy,
			f1(driving.Normal), f1(driving.Slow), f1(driving.Jam), r.MacroF1)
	}
}
