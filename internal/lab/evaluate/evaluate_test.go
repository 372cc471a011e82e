package evaluate_test

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/lab/evaluate"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
)

func TestEvaluator(t *testing.T) {
	p2135 := signal.TroubleCode{'P', '2', '1', '3', '5'}
	d := &drivelog.Drive{}
	row := func(at time.Duration, label driving.State, set func(*signal.Readings) error) {
		r := drivelog.Row{At: at, Label: label}
		if set != nil {
			testkit.NoError(t, set(&r.Readings))
		}
		d.Rows = append(d.Rows, r)
	}
	speed := func(r *signal.Readings) error { return r.Set(signal.Speed, 50) }
	codes := func(c ...signal.TroubleCode) func(*signal.Readings) error {
		return func(r *signal.Readings) error { return r.SetCodes(c) }
	}
	row(0, 1, nil)
	row(10*time.Second, 1, speed)
	row(20*time.Second, 0, speed)
	row(30*time.Second, 0, codes(p2135))
	row(95*time.Second, 0, codes())                       // cleared: normal a minute later
	row(120*time.Second, 0, speed)                        // 25 s later: driven
	row(120*time.Second+75001*time.Millisecond, 0, speed) // a pause
	row(600*time.Second, 1, nil)                          // more than five minutes old: no verdict
	row(610*time.Second, 0, codes(p2135))
	var all evaluate.Drives
	page := evaluate.Plot([]evaluate.Track{all.Add("x", d)})
	r := all.Files[0]
	if want := [4]float64{0: 20, driving.Normal: 110}; r.Seconds != 130 || [4]float64(r.States) != want {
		t.Errorf("got %v s driven, %v, want 130, %v", r.Seconds, r.States, want)
	}
	if want := [4]int{2, 1, 0, 0}; r.Confusion[0] != want {
		t.Errorf("got the confusion %v, want %v", r.Confusion, want)
	}
	if len(r.Anomalies) != 2 || r.Anomalies[0].At != 30 || r.Anomalies[0].For != 165.001 ||
		!strings.Contains(r.Anomalies[0].Reason, "throttle/trouble-code: ") ||
		!strings.Contains(r.Anomalies[0].Reason, "P2135") || r.Anomalies[1].At != 610 || r.Anomalies[1].For != 0 {
		t.Errorf("anomalies: got %+v, want P2135 at 30 s, for 165.001, and one at 610", r.Anomalies)
	}
	if got := strings.Count(page, "stroke-dasharray"); got != 2 {
		t.Errorf("got %d pauses in the plot, want 2", got)
	}
}

func TestPlot_WellFormed(t *testing.T) {
	d := &drivelog.Drive{Rows: []drivelog.Row{{}}}
	var all evaluate.Drives
	text := evaluate.Plot([]evaluate.Track{all.Add(`<script>&"`, d), all.Add("no rows", &drivelog.Drive{})})
	if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
		t.Errorf("the plot: got %v, want no error:\n%s", err, text)
	}
	if strings.Contains(text, "<script") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("the plot: got\n%s\nwant no script, NaN or Inf", text)
	}
}
