package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/plot"
)

// Charts have this size in SVG units, which the page scales. Labels are HTML and not scaled.
const (
	chartWidth  = 1000.0
	chartHeight = 240.0
)

const (
	mostTicks    = 6
	mostReadouts = 240 // selectable by pointer and keyboard; about 8 KB of the page
	drawnPieces  = 600 // for each, only the lowest and highest point are drawn
)

type chart struct {
	From, Till time.Time
	Ticks      []tick
	Levels     []level // from the top down
	Xs, Texts  string  // of the points that can be selected, separated by " " and "|"

	scale plot.Scale
}

type tick struct {
	At      time.Time
	Percent float64 // of the width
}

type level struct {
	Value, Y float64
}

func newChart(from, till time.Time, high float64) chart {
	c := chart{From: from, Till: till, scale: plot.NewScale(high, chartHeight, 0)}
	for _, t := range plot.TimeTicks(from, till, mostTicks) {
		c.Ticks = append(c.Ticks, tick{t, 100 * c.x(t) / chartWidth})
	}
	for _, v := range slices.Backward(c.scale.Ticks) {
		c.Levels = append(c.Levels, level{v, c.scale.At(v)})
	}
	return c
}

func (c *chart) x(t time.Time) float64 {
	return chartWidth * float64(t.Sub(c.From)) / float64(max(1, c.Till.Sub(c.From)))
}

func (c *chart) point(t time.Time, value float64, gap bool) plot.Point {
	return plot.Point{X: c.x(t), Y: c.scale.At(value), Gap: gap}
}

func (c *chart) say(n int, clock string, at func(i int) (t time.Time, text string)) {
	var xs, texts []string
	for _, i := range sampled(n, mostReadouts) {
		t, text := at(i)
		xs = append(xs, fmt.Sprintf("%.1f", c.x(t)))
		texts = append(texts, t.UTC().Format(clock)+" UTC: "+text)
	}
	c.Xs, c.Texts = strings.Join(xs, " "), strings.Join(texts, "|")
}

// sampled returns at most most of n indices, evenly spaced, with the first and the last.
func sampled(n, most int) (all []int) {
	for k := range min(n, most) {
		all = append(all, k*(n-1)/max(1, min(n, most)-1))
	}
	return all
}
