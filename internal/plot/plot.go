// Package plot converts values to SVG geometry. Pages, colours and units belong to the packages
// that draw.
package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

type Scale struct {
	Ticks    []float64 // round values, evenly spaced, from 0 to the top
	from, to float64   // the positions of 0 and of the top
}

// NewScale has 0 at the position from, and at the position to a round number not below high, which
// must be above 0.
func NewScale(high, from, to float64) Scale {
	s := Scale{from: from, to: to}
	step := roundStep(high / 5)
	for i := 0; i == 0 || s.Top() < high; i++ {
		s.Ticks = append(s.Ticks, float64(i)*step)
	}
	return s
}

func (s *Scale) At(v float64) float64 { return s.from + v/s.Top()*(s.to-s.from) }

func (s *Scale) Top() float64 { return s.Ticks[len(s.Ticks)-1] }

// roundStep returns the next 1, 2, 3 or 5 times a power of ten. v must be above 0.
func roundStep(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 3, 5} {
		if n*unit >= v {
			return n * unit
		}
	}
	return 10 * unit
}

type Point struct {
	X, Y float64
	Gap  bool // no line leads to this point
}

// Curve returns an SVG path. If column is above 0, it has only the lowest and the highest point of
// each column of that width, so that it stays short.
func Curve(points []Point, column float64) string {
	var b strings.Builder
	for i := 0; i < len(points); {
		first, low, high := i, i, i
		for i++; column > 0 && i < len(points) && !points[i].Gap &&
			math.Floor(points[i].X/column) == math.Floor(points[first].X/column); i++ {
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

type Span[X any, V comparable] struct {
	From, To X
	Value    V
}

// Extend adds a point to spans. Unless gap is set, the last span extends to it; a new one begins if
// the value differs.
func Extend[X any, V comparable](spans []Span[X, V], at X, value V, gap bool) []Span[X, V] {
	if n := len(spans); n > 0 && !gap {
		spans[n-1].To = at
		if spans[n-1].Value == value {
			return spans
		}
	}
	return append(spans, Span[X, V]{at, at, value})
}

var timeSteps = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// TimeTicks returns round, evenly spaced times, at most most of them.
func TimeTicks(from, till time.Time, most int) (ticks []time.Time) {
	i := 0
	for i < len(timeSteps)-1 && till.Sub(from) >= time.Duration(most)*timeSteps[i] {
		i++
	}
	step := timeSteps[i]
	for t := from.Truncate(step); !t.After(till) && len(ticks) < most; t = t.Add(step) {
		if !t.Before(from) {
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// Between returns the area of curves with the same X values. A Gap in over interrupts it.
func Between(over, under []Point, column float64) (path string) {
	for len(over) > 0 {
		end := 1
		for end < len(over) && !over[end].Gap {
			end++
		}
		ring := slices.Concat(over[:end], under[:end])
		slices.Reverse(ring[end:])
		for i := range ring {
			ring[i].Gap = false
		}
		path += Curve(ring, column) + "Z"
		over, under = over[end:], under[end:]
	}
	return path
}
