// Package report collects, stores and prints what the parts of the bench measured.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
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
}

// Part is one part of the bench: how it has to measure, and what it has measured so far.
type Part struct {
	Name   string
	Quick  bool   // a short run, as a test of the bench; its figures are rough
	Rounds int    // how often each subject is measured, interleaved; the result is the median
	Dir    string // a directory of the part's own, on the disk to be measured; removed afterwards
	Binary string // the built carstate
	Logf   func(format string, args ...any)

	Figures []Figure
}

// Add adds a figure with the median of the rounds, their minimum and maximum. It returns the median.
func (p *Part) Add(subject, name, unit, remark string, rounds ...float64) float64 {
	return p.add("", nil, subject, name, unit, remark, rounds)
}

// AtMost is like Add, but most is the greatest good median. If most is 0, there is no aim.
func (p *Part) AtMost(most float64, subject, name, unit, remark string, rounds ...float64) float64 {
	if most == 0 {
		return p.Add(subject, name, unit, remark, rounds...)
	}
	return p.add(fmt.Sprintf("≤ %g", most), func(v float64) bool { return v <= most }, subject, name, unit, remark, rounds)
}

// AtLeast is like Add, but least is the smallest good median. If least is 0, there is no aim.
func (p *Part) AtLeast(least float64, subject, name, unit, remark string, rounds ...float64) float64 {
	if least == 0 {
		return p.Add(subject, name, unit, remark, rounds...)
	}
	return p.add("≥ "+number(least), func(v float64) bool { return v >= least }, subject, name, unit, remark, rounds)
}

func (p *Part) add(aim string, met func(float64) bool, subject, name, unit, remark string, rounds []float64) float64 {
	f := Figure{Part: p.Name, Subject: subject, Name: name, Unit: unit, Remark: remark, Value: Median(rounds)}
	if met != nil {
		f.Aim, f.Met = strings.TrimSpace(aim+" "+unit), new(met(f.Value))
	}
	if len(rounds) > 1 {
		f.Low, f.High = slices.Min(rounds), slices.Max(rounds)
	}
	if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
		f.Value = 0 // a ratio with denominator 0
	}
	p.Logf("%s: %s: %s", f.Subject, f.Name, f.Text())
	p.Figures = append(p.Figures, f)
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

// Quantile returns the smallest value that is greater than or equal to a share q of values, or 0.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1)]
}

// Slope returns the Theil–Sen estimate: the median of the slopes between pairs of points, which a few
// outliers do not change. x ascends. Of many points, only some of the pairs are used.
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
