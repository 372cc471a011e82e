package drivelog_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
)

// unmarked are the formats of files that are not recognized.
var unmarked = map[string]string{
	"freematics.csv": "freematics",
	"generic.csv": `from: csv
time: {path: when, unit: s}
signals:
  Vehicle.Speed: {path: kn, unit: knots}
  Vehicle.OBD.Status.IsMILOn: {path: mil}
  Vehicle.OBD.DTCList: {path: dtc}
  Vehicle.LowVoltageSystemState: {path: key, values: {run: "ON", "off": "OFF"}}`,
}

var update = flag.Bool("update", false, "write what is read now to testdata/*.want")

func TestDrives_MatchGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.[cgj]*")
	if err != nil || len(files) < 12 {
		t.Fatalf("drives in testdata: got %d, %v, want 12 or more", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			as, err := format.Parse(unmarked[filepath.Base(file)])
			testkit.NoError(t, err)
			d, err := drivelog.Open(t.Context(), file, as)
			testkit.NoError(t, err)
			checkSums(t, d)
			got := tell(d)
			golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".want"
			if *update {
				testkit.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			testkit.NoError(t, err)
			if got != string(want) {
				t.Errorf("%s reads as\n%s\nwant\n%s", file, got, want)
			}
		})
	}
}

func tell(d *drivelog.Drive) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d rows of %d", d.Format, len(d.Rows), d.Lines)
	if !d.Start.IsZero() {
		fmt.Fprintf(&b, ", from %s", d.Start.Format("2006-01-02T15:04:05.000Z07:00"))
	}
	b.WriteString("\n")
	for _, n := range d.Notes() {
		fmt.Fprintln(&b, "-", n)
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		fmt.Fprintf(&b, "%9.3f", r.At.Seconds())
		for s := range signal.Signal(signal.Num) {
			if v, ok := r.Readings.Value(s); ok {
				fmt.Fprintf(&b, "  %s %.6g", s.String()[strings.LastIndex(s.String(), ".")+1:], v)
			}
		}
		if r.Label != 0 {
			fmt.Fprintf(&b, "  (%s)", r.Label)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Each row is kept or counted as left out, times do not decrease, and no row is empty.
func checkSums(t testing.TB, d *drivelog.Drive) {
	t.Helper()
	total := len(d.Rows)
	for _, c := range d.RowsLeftOut {
		total += c.N
	}
	if total != d.Lines {
		t.Errorf("rows kept or left out: got %d, want %d", total, d.Lines)
	}
	if len(d.Rows) == 0 {
		t.Error("got no row and no error, want one of them")
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		if r.At < 0 || i > 0 && r.At < d.Rows[i-1].At {
			t.Fatalf("row %d: got it at %v, want it not before %v", i, r.At, d.Rows[max(i-1, 0)].At)
		}
		if r.Readings.Empty() && r.Label == 0 {
			t.Fatalf("row %d: got nothing, want a reading or a label", i)
		}
	}
}
