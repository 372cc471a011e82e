package evaluate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
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
	row(45*time.Second, 0, codes())                       // cleared: normal by the next row
	row(120*time.Second, 0, speed)                        // 75 s later: driven
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
	if len(r.Anomalies) != 2 || r.Anomalies[0].At != 30 || r.Anomalies[0].For != 90 ||
		!strings.Contains(r.Anomalies[0].Reason, "throttle/trouble-code: ") ||
		!strings.Contains(r.Anomalies[0].Reason, "P2135") ||
		r.Anomalies[1].At != 610 || r.Anomalies[1].For != 0 {
		t.Errorf("anomalies %+v", r.Anomalies)
	}
	if len(tr.pauses) != 2 || tr.end != 130*time.Second || len(tr.speeds) != 4 || !tr.speeds[3].after {
		t.Errorf("track %+v", tr)
	}
}

func TestWriteTables_Anomalies(t *testing.T) {
	var e Drives
	e.add(fileResult{File: "broken.csv", Seconds: 60, States: stateSeconds{vehicle.NormalDriving: 60},
		Anomalies: []anomaly{{At: 12.5, For: 3, Reason: "because"}}})
	var b bytes.Buffer
	if err := e.WriteTables(&b); err != nil ||
		!strings.Contains(b.String(), "broken.csv           12.5 s  3.0 s  because") {
		t.Errorf("%v, anomalies in\n%s", err, &b)
	}
	if err := e.WriteTables(failing{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

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

// TestReason_NamesRuleAndSensors checks that the reason of an anomaly names the rule and
// its sensors.
func TestReason_NamesRuleAndSensors(t *testing.T) {
	d := &drivelog.Drive{}
	for i := range 200 {
		plate := float64(15 + 10*(i/10%3))
		var r drivelog.Row
		r.At = time.Duration(i) * time.Second
		b := plate + 30
		if i >= 150 {
			b = plate
		}
		if err := errors.Join(r.Readings.Set(vehicle.ThrottlePosition, plate),
			r.Readings.Set(vehicle.ThrottlePositionB, b)); err != nil {
			t.Fatal(err)
		}
		d.Rows = append(d.Rows, r)
	}
	const want = "throttle/redundant-sensors: two sensors of one position no longer agree as they did on this car: "
	if r, _ := run("x", d); len(r.Anomalies) != 1 || !strings.HasPrefix(r.Anomalies[0].Reason, want) {
		t.Errorf("anomalies %+v", r.Anomalies)
	}
}

// TestMapBounds checks that a map has a limited size and all its marks on the page: with no place,
// with one, with places on both sides of the date line, and near a pole.
func TestMapBounds(t *testing.T) {
	for name, spots := range map[string][]spot{
		"none":          nil,
		"one":           {{44.5, 11.3, vehicle.NormalDriving}},
		"the date line": {{-17, 179.99, vehicle.NormalDriving}, {-17.01, -179.99, vehicle.TrafficJam}},
		"a pole":        {{89.99, 0, vehicle.NormalDriving}, {89.99, 80, vehicle.NormalDriving}},
	} {
		svg := plotMap(name, spots)
		var page struct {
			Height float64 `xml:"height,attr"`
			Marks  []struct {
				X float64 `xml:"x,attr"`
				Y float64 `xml:"y,attr"`
			} `xml:"rect"`
		}
		if err := xml.Unmarshal([]byte(svg), &page); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if page.Height > mapHeight+200 || len(page.Marks) != 5+len(spots) {
			t.Errorf("%s: %v high, %d marks", name, page.Height, len(page.Marks))
		}
		for _, m := range page.Marks {
			if m.X < 0 || m.X > pageWidth || m.Y < 0 || m.Y > page.Height {
				t.Errorf("%s: a mark at %v, %v", name, m.X, m.Y)
			}
		}
	}
}
