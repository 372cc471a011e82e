// Package report collects what the parts of the bench measured. Every table,
// document and plot is drawn from these values, so that no figure is typed by
// hand. It measures nothing itself.
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
	Subject string  `json:"subject"`          // who was measured: "carstate", "nginx return"
	Name    string  `json:"name"`             // what: "server CPU a request"
	Value   float64 `json:"value"`            // the median where there were rounds
	Low     float64 `json:"low,omitempty"`    // least and most of the rounds; both 0: one round
	High    float64 `json:"high,omitempty"`   //
	Unit    string  `json:"unit"`             // "µs", "B", "1/s"
	Aim     string  `json:"aim,omitempty"`    // what was hoped for, as a person would write it: "≤ 64 B"
	Met     *bool   `json:"met,omitempty"`    // whether the aim was reached; nil without an aim
	Remark  string  `json:"remark,omitempty"` // what a reader must know about this number

	AtMost, AtLeast float64 `json:"-"` // the aim as a number; 0: there is none
}

// Line is one curve of a plot.
type Line struct {
	Label string    `json:"label"`
	X     []float64 `json:"x"`
	Y     []float64 `json:"y"`
}

// Plot is one picture, drawn from its lines alone.
type Plot struct {
	Part  string `json:"part"`
	File  string `json:"file"` // name of the SVG without its ending: "query-vehicles"
	Title string `json:"title"`
	XAxis string `json:"x_axis"` // with its unit
	YAxis string `json:"y_axis"`
	LogX  bool   `json:"log_x,omitempty"`
	LogY  bool   `json:"log_y,omitempty"`
	Lines []Line `json:"lines"`
}

// Results is all that one run found. Safe for concurrent use.
type Results struct {
	mu      sync.Mutex
	Figures []Figure `json:"figures"`
	Plots   []Plot   `json:"plots"`
}

// Add takes a figure in.
func (r *Results) Add(f Figure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Figures = append(r.Figures, f)
}

// Measure adds a figure of what the rounds found: their median, which it returns, with
// the least and the most, held against the aim.
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

// Median is the middle of the values; of none it is 0.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Quantile is what so large a part of the values does not exceed; of none it is 0.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1)]
}

// Draw takes a plot in.
func (r *Results) Draw(p Plot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Plots = append(r.Plots, p)
}
