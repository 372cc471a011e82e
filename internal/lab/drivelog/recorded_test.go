//go:build !race

package drivelog_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
)

// TestRecordedDrives reads all published drives, if they are present.
func TestRecordedDrives(t *testing.T) {
	testkit.Slow(t, "it reads every recorded drive")
	dir := testkit.RecordedDrives("only invented drives and the bundled one are read")
	if dir == "" {
		return
	}
	for _, c := range []struct {
		folder, format string
		files          int
		check          func(*testing.T, *drivelog.Drive)
	}{
		{"kit_obd", "KIT", 38, checkKIT},
		{"carobd", "carOBD", 54, checkCarOBD},
		{"pyobd", "pyobd", 1, checkPyOBD},
		{"tds", "TDS", 2, checkTDS},
		{"hil", "HIL", 1, func(t *testing.T, d *drivelog.Drive) {
			if notes := d.Notes(); len(notes) != 0 {
				t.Errorf("got %q left out, want nothing", notes)
			}
		}},
	} {
		files, err := filepath.Glob(filepath.Join(dir, c.folder, "*.csv*"))
		if err != nil || len(files) < c.files {
			t.Errorf("drives in %s: got %d, want %d or more", c.folder, len(files), c.files)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				d, err := drivelog.Open(t.Context(), file, nil)
				testkit.NoError(t, err)
				checkSums(t, d)
				if d.Format != c.format {
					t.Errorf("the format: got %s, want %s", d.Format, c.format)
				}
				for _, n := range d.ReadingsLeftOut {
					t.Errorf("readings left out of a healthy file: got %d, want 0: %s", n.N, n.Reason)
				}
				if top := topSpeed(d); c.folder != "carobd" && (top < 50 || top > 250) {
					t.Errorf("the top speed: got %g km/h, want 50 to 250", top)
				}
				c.check(t, d)
			})
		}
	}
}

func topSpeed(d *drivelog.Drive) (top float32) {
	for i := range d.Rows {
		if v, ok := d.Rows[i].Readings.Speed(); ok {
			top = max(top, v)
		}
	}
	return top
}

func of(counts []drivelog.Count, reason string) int {
	for _, c := range counts {
		if c.Reason == reason {
			return c.N
		}
	}
	return 0
}

// Each row has one reading, about half are of a used sensor, and at most 5 % are in doubt. In the
// worst file, whose connection failed 58 times in 6,829 rows, 2.5 % are.
func checkKIT(t *testing.T, d *drivelog.Drive) {
	for i := range d.Rows {
		n := 0
		for s := range signal.Signal(signal.Num) {
			if d.Rows[i].Readings.Has(s) {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("readings at %v: got %d, want 1", d.Rows[i].At, n)
		}
	}
	if doubt := of(d.RowsLeftOut, "repeats earlier values; no sensor was certainly read again"); doubt > d.Lines/20 {
		t.Errorf("rows in doubt: got %d of %d, want a twentieth at most", doubt, d.Lines)
	}
	if used := float64(len(d.Rows)) / float64(d.Lines); used < 0.46 || used > 0.52 {
		t.Errorf("rows with a reading: got %.3f of them, want about 5 of 10", used)
	}
	if n := of(d.Mended, clockSet); n > 1 {
		t.Errorf("the clock: got it set %d times, want once at most", n)
	}
}

// Each sensor is read about every 1.81 s, and rows are 0.49 s apart.
func checkCarOBD(t *testing.T, d *drivelog.Drive) {
	if every := d.Duration().Seconds() / float64(d.Lines-1); every < 0.47 || every > 0.51 {
		t.Errorf("rows: got one every %.3f s, want 0.49", every)
	}
	for s := range signal.Signal(signal.Num) {
		n := 0
		for i := range d.Rows {
			if d.Rows[i].Readings.Has(s) {
				n++
			}
		}
		if n == 0 {
			if s != signal.Speed && s < signal.DTCList {
				t.Errorf("%s: got no reading, want one", s)
			}
			continue
		}
		if every := d.Duration().Seconds() / float64(n); every < 1.7 || every > 2.1 {
			t.Errorf("%s: got one every %.2f s, want 1.7 to 2.1", s, every)
		}
	}
	if len(d.Mended) != 0 {
		t.Errorf("put right: got %v, want nothing", d.Mended)
	}
}

// After the conversion from miles, the speed is in whole km/h.
func checkPyOBD(t *testing.T, d *drivelog.Drive) {
	published := strings.HasSuffix(t.Name(), "/2019-5-22-12-41-16.csv.gz")
	if want := time.Date(2019, 5, 22, 11, 41, 19, 922e6, time.UTC); published && !d.Start.Equal(want) {
		t.Errorf("the start: got %v, want %v", d.Start, want)
	}
	if top := topSpeed(d); published && top != 114 {
		t.Errorf("the top speed: got %g km/h, want 114", top)
	}
	for i := range d.Rows {
		v, ok := d.Rows[i].Readings.Value(signal.OBDSpeed)
		if !ok || math.Abs(float64(v)-math.Round(float64(v))) > 1e-4 {
			t.Fatalf("at %v: got %v km/h, want a whole number", d.Rows[i].At, v)
		}
	}
}

func checkTDS(t *testing.T, d *drivelog.Drive) {
	labelled := map[driving.State]int{}
	for i := range d.Rows {
		labelled[d.Rows[i].Label]++
	}
	if len(d.Rows) != d.Lines || labelled[0] != 0 || len(labelled) != 3 {
		t.Errorf("got %d rows of %d, labels %v, want all, each with one of 3", len(d.Rows), d.Lines, labelled)
	}
	joints := of(d.Mended, "recording joined on: a pause of an hour put before it")
	want := time.Duration(d.Lines-1)*time.Second + time.Duration(joints)*time.Hour
	if joints < 1 || d.Duration() != want {
		t.Errorf("got %d joints, %v long, want 1 or more, %v", joints, d.Duration(), want)
	}
}
