package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"carstate/internal/plot"
)

// Ticks and read-outs of a chart.
const (
	mostTicks    = 6
	mostReadouts = 240 // points that the pointer and the keyboard find; some 8 KB of the page
)

// axis is the times of a chart, from its left to its right edge.
type axis struct {
	From, Till time.Time
	Ticks      []axisTick
}

// axisTick is a round time and its place, in the units of the chart and in percent.
type axisTick struct {
	At         time.Time
	X, Percent float64
}

func newAxis(from, till time.Time) axis {
	a := axis{From: from, Till: till}
	for _, t := range plot.TimeTicks(from, till, mostTicks) {
		a.Ticks = append(a.Ticks, axisTick{t, a.x(t), 100 * a.x(t) / chartWidth})
	}
	return a
}

// x is the place of a time.
func (a *axis) x(t time.Time) float64 {
	return chartWidth * float64(t.Sub(a.From)) / float64(max(1, a.Till.Sub(a.From)))
}

// level is a round value of a chart and its place.
type level struct {
	Value, Y float64
}

// levelsOf are the round values of a scale, the highest first, as they stand beside the chart.
func levelsOf(s *plot.Scale) (levels []level) {
	for _, v := range slices.Backward(s.Ticks) {
		levels = append(levels, level{v, s.At(v)})
	}
	return levels
}

// readouts are what a chart says under the pointer: a line for each place, from left to right.
type readouts struct{ Xs, Texts string }

// newReadouts takes at most mostReadouts of n points.
func newReadouts(n int, at func(i int) (x float64, text string)) (r readouts) {
	var xs, texts []string
	for k := range min(n, mostReadouts) {
		i := k
		if n > mostReadouts {
			i = k * (n - 1) / (mostReadouts - 1)
		}
		x, text := at(i)
		xs, texts = append(xs, fmt.Sprintf("%.1f", x)), append(texts, text)
	}
	return readouts{strings.Join(xs, " "), strings.Join(texts, "|")}
}
