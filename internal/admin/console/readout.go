package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/plot"
)

// The size of a chart in SVG units. The page scales the chart to the screen. The labels are HTML
// and are not scaled, so that they have the same size on every screen.
const (
	chartWidth  = 1000.0
	chartHeight = 240.0
)

// Limits of a chart.
const (
	mostTicks    = 6
	mostReadouts = 240 // points that pointer and keyboard can select; about 8 KB of the page

	maxPoints   = 20_000          // points in the curve of a vehicle, about 800 KB
	curveSpan   = time.Hour       // time span that is drawn
	curveGap    = 2 * time.Minute // the line is interrupted if there is no reading for this time
	drawnPieces = 600             // columns of the drawing; for each, only the lowest and highest point are drawn
)

// axis is the time axis of a chart, from left to right.
type axis struct {
	From, Till time.Time
	Ticks      []axisTick
}

// axisTick is a round time with its position, in SVG units and in percent.
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

// x returns the position of a time on the axis, in SVG units from the left.
func (a *axis) x(t time.Time) float64 {
	return chartWidth * float64(t.Sub(a.From)) / float64(max(1, a.Till.Sub(a.From)))
}

// level is a horizontal line of a chart: a round value, and its position in SVG units.
type level struct {
	Value, Y float64
}

// levelsOf returns the horizontal lines of a chart, one at each round value, the highest first.
func levelsOf(s *plot.Scale) (levels []level) {
	for _, v := range slices.Backward(s.Ticks) {
		levels = append(levels, level{v, s.At(v)})
	}
	return levels
}

// readouts holds the texts that a chart shows at its points, separated by "|", and the horizontal
// positions of the points, separated by spaces.
type readouts struct{ Xs, Texts string }

// newReadouts returns the readouts of n points, evenly spread if there are more than mostReadouts.
func newReadouts(n int, at func(i int) (x float64, text string)) (r readouts) {
	var xs, texts []string
	for k := range min(n, mostReadouts) {
		x, text := at(k * (n - 1) / max(1, min(n, mostReadouts)-1))
		xs, texts = append(xs, fmt.Sprintf("%.1f", x)), append(texts, text)
	}
	return readouts{strings.Join(xs, " "), strings.Join(texts, "|")}
}
