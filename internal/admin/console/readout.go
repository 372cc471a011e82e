package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/plot"
)

// In SVG units, which the page scales to the screen. Labels are HTML and not scaled.
const (
	chartWidth  = 1000.0
	chartHeight = 240.0
)

const (
	mostTicks    = 6
	mostReadouts = 240 // selectable by pointer and keyboard; about 8 KB of the page

	maxPoints   = 20_000 // of a vehicle's curve, about 800 KB
	curveSpan   = time.Hour
	curveGap    = 2 * time.Minute // without a reading, after which the line is interrupted
	drawnPieces = 600             // for each, only the lowest and highest point are drawn
)

type axis struct {
	From, Till time.Time
	Ticks      []axisTick
}

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

func (a *axis) x(t time.Time) float64 {
	return chartWidth * float64(t.Sub(a.From)) / float64(max(1, a.Till.Sub(a.From)))
}

type level struct {
	Value, Y float64
}

func levelsOf(s *plot.Scale) (levels []level) {
	for _, v := range slices.Backward(s.Ticks) {
		levels = append(levels, level{v, s.At(v)})
	}
	return levels
}

// readouts are the texts that a chart shows at its points, separated by "|", and the X of the
// points.
type readouts struct{ Xs, Texts string }

func newReadouts(n int, at func(i int) (x float64, text string)) (r readouts) {
	var xs, texts []string
	for k := range min(n, mostReadouts) {
		x, text := at(k * (n - 1) / max(1, min(n, mostReadouts)-1))
		xs, texts = append(xs, fmt.Sprintf("%.1f", x)), append(texts, text)
	}
	return readouts{strings.Join(xs, " "), strings.Join(texts, "|")}
}
