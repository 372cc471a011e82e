package evaluate

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/vehicle"
)

// TestEvaluator checks one drive row by row. It checks that pauses are not counted as time driven,
// that old verdicts are ignored, and that anomalies have a beginning, a length and a reason.
func TestEvaluator(t *testing.T) {
	p2135, err := vehicle.ParseTroubleCode("P2135")
	if err != nil {
		t.Fatal(err)
	}
	d := &drivelog.Drive{}
	row := func(at time.Duration, label vehicle.DrivingState, set func(*vehicle.Readings) error) {
		r := drivelog.Row{At: at, Label: label}
		if set != nil {
			if err := set(&r.Readings); err != nil {
				t.Fatal(err)
			}
		}
		d.Rows = append(d.Rows, r)
	}
	speed := func(r *vehicle.Readings) error { return r.Set(vehicle.Speed, 50) }
	codes := func(c ...vehicle.TroubleCode) func(*vehicle.Readings) error {
		return func(r *vehicle.Readings) error { return r.SetCodes(c) }
	}
	row(0, 1, nil) // before anything was read
	row(10*time.Second, 1, speed)
	row(20*time.Second, 0, speed)
	row(30*time.Second, 0, codes(p2135))
	row(95*time.Second, 0, codes())                       // cleared: normal a minute later
	row(120*time.Second, 0, speed)                        // 25 s later: driven
	row(120*time.Second+75001*time.Millisecond, 0, speed) // a pause
	row(600*time.Second, 1, nil)                          // more than five minutes old: no verdict
	row(610*time.Second, 0, codes(p2135))
	r, tr := run("x", d)
	if r.Seconds != 130 || r.States != (stateSeconds{0: 20, vehicle.NormalDriving: 110}) {
		t.Errorf("%v s driven, %+v", r.Seconds, r.States)
	}
	if want := [4]int{2, 1, 0, 0}; r.Confusion[0] != want {
		t.Errorf("confusion %v", r.Confusion)
	}
	if len(r.Anomalies) != 2 || r.Anomalies[0].At != 30 || r.Anomalies[0].For != 165.001 ||
		!strings.Contains(r.Anomalies[0].Reason, "throttle/trouble-code: ") ||
		!strings.Contains(r.Anomalies[0].Reason, "P2135") ||
		r.Anomalies[1].At != 610 || r.Anomalies[1].For != 0 {
		t.Errorf("anomalies %+v", r.Anomalies)
	}
	if len(tr.pauses) != 2 || tr.end != 130*time.Second || len(tr.speeds) != 4 || !tr.speeds[3].after {
		t.Errorf("track %+v", tr)
	}
}

// TestPlot_WellFormed checks that a page is well-formed, whatever the name of a file and however
// few rows it has.
func TestPlot_WellFormed(t *testing.T) {
	d := &drivelog.Drive{Rows: []drivelog.Row{{}}}
	_, empty := run(`<script>&"`, d)
	text := Plot([]Track{empty, {name: "no rows"}})
	if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
		t.Error(err)
	}
	if strings.Contains(text, "<script") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error(text)
	}
}
