// Package plot turns values into the shapes of an SVG drawing: scales with round ticks, the path
// of a curve, and the spans in which a value lasts. It knows no page, no colour and no unit: the
// packages that draw do.
package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Scale maps values to places along one side of a drawing.
type Scale struct {
	Ticks     []float64 // round values, evenly spaced; the first and the last are the ends
	from, to  float64   // the places of the ends
	low, high float64   // the ends; their exponents, if the scale is logarithmic
	log       bool
}

// NewScale returns a scale between two places. Its ends are round numbers around low and high; on
// a logarithmic scale, for which both must be above 0, they are powers of ten.
func NewScale(low, high, from, to float64, log bool) Scale {
	s := Scale{from: from, to: to, log: log}
	if log {
		s.low, s.high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
		if s.high <= s.low {
			s.high = s.low + 1
		}
		for e := s.low; e <= s.high; e++ {
			s.Ticks = append(s.Ticks, math.Pow(10, e))
		}
		return s
	}
	if high <= low {
		high = low + 1
	}
	step := roundStep((high - low) / 5)
	s.low = math.Floor(low/step) * step
	for i := 0; i == 0 || s.high < high; i++ {
		s.high = s.low + float64(i)*step
		s.Ticks = append(s.Ticks, s.high)
	}
	return s
}

// At returns the place of a value.
func (s *Scale) At(v float64) float64 {
	if s.log {
		v = math.Log10(max(v, math.SmallestNonzeroFloat64))
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// Top is the value at the upper end.
func (s *Scale) Top() float64 { return s.Ticks[len(s.Ticks)-1] }

// roundStep is 1, 2, 3 or 5 times a power of ten, and v at least.
func roundStep(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 3, 5} {
		if n*unit >= v {
			return n * unit
		}
	}
	return 10 * unit
}

// Point is a point of a curve, in the units of the drawing.
type Point struct {
	X, Y float64
	Gap  bool // no line leads from the point before to this one
}

// Curve returns the path of a curve. Of the points in one column of the drawing only the lowest
// and the highest are drawn, so that the path stays short however many points there are; a width
// of 0 draws them all.
func Curve(points []Point, column float64) string {
	var b strings.Builder
	for i := 0; i < len(points); {
		first, low, high := i, i, i
		for i++; column > 0 && i < len(points) && !points[i].Gap && math.Floor(points[i].X/column) == math.Floor(points[first].X/column); i++ {
			if points[i].Y < points[low].Y {
				low = i
			}
			if points[i].Y > points[high].Y {
				high = i
			}
		}
		letter := "L"
		if first == 0 || points[first].Gap {
			letter = "M"
		}
		p, q := points[min(low, high)], points[max(low, high)]
		fmt.Fprintf(&b, "%s%.1f %.1f", letter, p.X, p.Y)
		if p != q {
			fmt.Fprintf(&b, "L%.1f %.1f", q.X, q.Y)
		}
	}
	return b.String()
}

// Span is a part of a curve in which a value lasts.
type Span[X any, V comparable] struct {
	From, To X
	Value    V
}

// Extend adds a point with a value to spans in their order. The value of the point before lasts
// until this point, unless there is a gap between them.
func Extend[X any, V comparable](spans []Span[X, V], at X, value V, gap bool) []Span[X, V] {
	if n := len(spans); n > 0 && !gap {
		spans[n-1].To = at
		if spans[n-1].Value == value {
			return spans
		}
	}
	return append(spans, Span[X, V]{at, at, value})
}

// timeSteps are the round times between two ticks.
var timeSteps = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// TimeTicks returns the round times between two times, evenly spaced, and at most the given
// number of them.
func TimeTicks(from, till time.Time, most int) (ticks []time.Time) {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if till.Sub(from) < time.Duration(most)*s {
			step = s
			break
		}
	}
	for t := from.Truncate(step); !t.After(till) && len(ticks) < most; t = t.Add(step) {
		if !t.Before(from) {
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// Between returns the path around what lies between two curves of the same places, with a part for
// each run of points without a gap. Of the points in one column only the first is drawn.
func Between(over, under []Point, column float64) string {
	var b strings.Builder
	for start := 0; start < len(over); {
		kept := []int{start}
		end := start + 1
		for ; end < len(over) && !over[end].Gap; end++ {
			if over[end].X-over[kept[len(kept)-1]].X >= column {
				kept = append(kept, end)
			}
		}
		letter := "M"
		for _, i := range kept {
			fmt.Fprintf(&b, "%s%.1f %.1f", letter, over[i].X, over[i].Y)
			letter = "L"
		}
		for _, i := range slices.Backward(kept) {
			fmt.Fprintf(&b, "L%.1f %.1f", under[i].X, under[i].Y)
		}
		b.WriteString("Z")
		start = end
	}
	return b.String()
}
