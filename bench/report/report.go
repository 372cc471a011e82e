// Package report collects what the parts of the bench measured. Every table, document and
// plot is generated from these values, so that no figure is typed by hand. The package
// measures nothing itself.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Figure is one measured number.
type Figure struct {
	Part    string  `json:"part"`             // "query", "vehicle", "sample"
	Subject string  `json:"subject"`          // the system measured: "carstate", "nginx return"
	Name    string  `json:"name"`             // the quantity: "server CPU a request"
	Value   float64 `json:"value"`            // the median, if there were several rounds
	Low     float64 `json:"low,omitempty"`    // minimum of the rounds; 0, like High, after one round
	High    float64 `json:"high,omitempty"`   // maximum of the rounds
	Unit    string  `json:"unit"`             // "µs", "B", "1/s"
	Aim     string  `json:"aim,omitempty"`    // as shown to people: "≤ 64 B"
	Met     *bool   `json:"met,omitempty"`    // whether the aim was met; nil without an aim
	Remark  string  `json:"remark,omitempty"` // what a reader must know about this number

	AtMost, AtLeast float64 `json:"-"` // the aim as a number; 0: none
}

// Line is one curve of a plot.
type Line struct {
	Label string    `json:"label"`
	X     []float64 `json:"x"`
	Y     []float64 `json:"y"`
}

// Plot is one picture. It is drawn from its lines alone.
type Plot struct {
	Part  string `json:"part"`
	File  string `json:"file"` // name of the SVG file without extension: "query-vehicles"
	Title string `json:"title"`
	XAxis string `json:"x_axis"` // with its unit
	YAxis string `json:"y_axis"`
	LogX  bool   `json:"log_x,omitempty"`
	LogY  bool   `json:"log_y,omitempty"`
	Lines []Line `json:"lines"`
}

// Results holds what one run measured. It is safe for concurrent use.
type Results struct {
	mu      sync.Mutex
	Figures []Figure `json:"figures"`
	Plots   []Plot   `json:"plots"`
}

// Add adds a figure.
func (r *Results) Add(f Figure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Figures = append(r.Figures, f)
}

// Measure adds a figure with the median of the rounds, their minimum and maximum, and
// whether the aim is met. It returns the median.
func (r *Results) Measure(f Figure, rounds ...float64) float64 {
	f.Value = Median(rounds)
	if len(rounds) > 1 {
		f.Low, f.High = slices.Min(rounds), slices.Max(rounds)
	}
	if f.AtMost > 0 {
		f.Aim, f.Met = strings.TrimSpace(fmt.Sprintf("≤ %g %s", f.AtMost, f.Unit)), new(f.Value <= f.AtMost)
	}
	if f.AtLeast > 0 {
		f.Aim, f.Met = "≥ "+number(f.AtLeast)+" "+f.Unit, new(f.Value >= f.AtLeast)
	}
	r.Add(f)
	return f.Value
}

// Median returns the median of values, or 0 if there are none.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Quantile returns the q-quantile of values: the smallest value that is greater than or equal to a
// share q of them. It returns 0 if there are no values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1)]
}

// Slope returns the Theil–Sen estimate of the slope of points, which is the median of the slopes
// between all pairs of them, so a few outliers do not change it. The values of x are in ascending
// order. If there are many points, only some of the pairs are used. The slope is 0 for fewer than two
// points.
func Slope(x, y []float64) float64 {
	const enough = 1500
	step := len(x)/enough + 1
	var all []float64
	for i := 0; i < len(x); i += step {
		for j := i + step; j < len(x); j += step {
			if x[j] > x[i] {
				all = append(all, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	return Median(all)
}

// Draw adds a plot.
func (r *Results) Draw(p Plot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Plots = append(r.Plots, p)
}

// Options says how a part of the bench has to measure.
type Options struct {
	Quick  bool   // a short run, as a test of the bench; its figures are rough
	Rounds int    // how often each subject is measured, interleaved; the result is the median
	Dir    string // a directory of the part's own, on the disk to be measured; removed afterwards
	Binary string // the built carstate
	// Logf reports progress on the terminal.
	Logf func(format string, args ...any)
}
