package report

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/template"

	"example.org/carstate/internal/plot"
)

// The lines of a plot are distinguished by their colour and by the marks on their points.
var (
	lightColours = []string{"#0f62a8", "#b4450f", "#2c7a33", "#7b3f98", "#8a6d00"}
	darkColours  = []string{"#6db3f2", "#f5a06a", "#7fd08a", "#cfa0e8", "#e2c75a"}
)

//go:embed plot.svg.tmpl
var plotText string

var plotTemplate = template.Must(template.New("plot").Funcs(template.FuncMap{
	"place": func(v float64, off int) string { return fmt.Sprintf("%.1f", v+float64(off)) },
}).Parse(plotText))

// tick is a position on an axis.
type tick struct {
	At    float64
	Label string
}

// drawnLine is a line of a plot, with its mark for the legend.
type drawnLine struct {
	Label, Path string
	Colour      int
	Marks       []mark
	Sign        mark
}

// mark is the mark of a point. The lines use the kinds circle, square and diamond in turn.
type mark struct {
	Kind, Colour int
	X, Y         float64
}

// svg draws the plot. Its colours follow the reader's light or dark mode.
func (p *Plot) svg() string {
	const left, right, top, bottom = 78, 736, 70, 326
	var xs, ys []float64
	for _, l := range p.Lines {
		xs, ys = append(xs, l.X...), append(ys, l.Y...)
	}
	if !p.LogY {
		ys = append(ys, 0)
	}
	x, y := scaleOf(xs, p.LogX, left, right), scaleOf(ys, p.LogY, bottom, top)
	var lines []drawnLine
	legend := float64(left)
	for i, l := range p.Lines {
		d := drawnLine{Label: l.Label, Colour: i % len(lightColours)}
		sign := func(x, y float64) mark { return mark{i % 3, d.Colour, x, y} }
		var points []plot.Point
		for j := range min(len(l.X), len(l.Y)) {
			p := plot.Point{X: x.At(l.X[j]), Y: y.At(l.Y[j])}
			points = append(points, p)
			if len(l.X) <= 40 {
				d.Marks = append(d.Marks, sign(p.X, p.Y))
			}
		}
		d.Path, d.Sign = plot.Curve(points, 1), sign(legend+5, 46)
		lines = append(lines, d)
		legend += 34 + 6.6*float64(len([]rune(l.Label)))
	}
	var b strings.Builder
	if err := plotTemplate.Execute(&b, map[string]any{"Plot": p, "Light": lightColours, "Dark": darkColours, "X": ticks(x),
		"Y": ticks(y), "Lines": lines}); err != nil {
		panic(err) // an error of our own template is a bug
	}
	return b.String()
}

// ticks returns the ticks of an axis, labelled in few characters.
func ticks(s plot.Scale) (all []tick) {
	for _, v := range s.Ticks {
		short, prefix := scaled(v)
		all = append(all, tick{s.At(v), fmt.Sprintf("%.3g%s", short, prefix)})
	}
	return all
}

// scaleOf returns a scale that shows the given values. It ignores infinity and NaN, and on a
// logarithmic scale also values that are not positive.
func scaleOf(values []float64, log bool, from, to float64) plot.Scale {
	values = slices.DeleteFunc(values, func(v float64) bool {
		return math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0
	})
	if len(values) == 0 {
		values = []float64{1}
	}
	return plot.NewScale(slices.Min(values), slices.Max(values), from, to, log)
}
