package vehicle_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carstate/internal/lab/drivelog"
	"carstate/internal/vehicle"
)

// recording is a recorded drive as samples, with the label of each.
type recording struct {
	name    string
	samples []vehicle.Sample
	labels  []vehicle.DrivingState
}

// recordings reads the drives that a pattern names, in the order of their names.
func recordings(t *testing.T, dir, pattern string) []recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	var all []recording
	for _, file := range files {
		d, err := drivelog.Open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		rec := recording{name: strings.TrimSuffix(filepath.Base(file), ".csv.gz")}
		start := vehicle.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))
		for i := range d.Rows {
			r := &d.Rows[i]
			rec.samples = append(rec.samples,
				vehicle.Sample{Vehicle: "car", Time: start.Add(r.At), Readings: r.Readings})
			rec.labels = append(rec.labels, r.Label)
		}
		all = append(all, rec)
	}
	return all
}

// sessions splits a recording that consists of several drives into these drives.
func (r recording) sessions() []recording {
	var parts []recording
	from := 0
	for i := 1; i <= len(r.samples); i++ {
		if i < len(r.samples) && r.samples[i].Time.Sub(r.samples[i-1].Time) < 10*time.Minute {
			continue
		}
		parts = append(parts, recording{fmt.Sprintf("%s/%d", r.name, len(parts)), r.samples[from:i], r.labels[from:i]})
		from = i
	}
	return parts
}

// confusion counts labelled rows; the first index is the label, the second the verdict. Verdict 0
// means that there is none.
type confusion [4][4]float64

func (c *confusion) add(o confusion) {
	for i := range c {
		for j := range c[i] {
			c[i][j] += o[i][j]
		}
	}
}

// f1 returns the F1 score of each state, and their mean.
func (c *confusion) f1() (of [4]float64, macro float64) {
	for k := 1; k <= 3; k++ {
		var said, true float64
		for i := 1; i <= 3; i++ {
			said += c[i][k]
		}
		for j := range c[k] {
			true += c[k][j]
		}
		if said+true > 0 {
			of[k] = 2 * c[k][k] / (said + true)
		}
		macro += of[k] / 3
	}
	return of, macro
}

func (c *confusion) String() string {
	f, macro := c.f1()
	return fmt.Sprintf("macro-F1 %.3f  normal %.3f  slow %.3f  jam %.3f", macro, f[1], f[2], f[3])
}

// outcome is the result of the rules for a recording.
type outcome struct {
	confusion confusion
	seconds   [4]float64 // driven in each state
}

// longestDrivenGap is the longest step between two samples that is included in the time
// driven.
const longestDrivenGap = 75 * time.Second

// drive runs the rules over a recording. A verdict older than five minutes is ignored.
func (r *recording) drive() outcome {
	var o outcome
	var s vehicle.State
	was := vehicle.DrivingState(0)
	for i := range r.samples {
		x := &r.samples[i]
		if i > 0 {
			if step := x.Time.Sub(r.samples[i-1].Time); step <= longestDrivenGap {
				o.seconds[was] += step.Seconds()
			}
		}
		s = vehicle.Observe(s, *x)
		v := s.Driving()
		now := v.State
		if v.At(x.Time, 5*time.Minute) != vehicle.Answered {
			now = 0
		}
		was = now
		if l := r.labels[i]; l != 0 {
			o.confusion[l][now]++
		}
	}
	return o
}
