package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"carstate/internal/plot"
)

// The page of a plot, in the units of the drawing.
const (
	plotWidth  = 760
	plotHeight = 380
	plotLeft   = 78
	plotRight  = 24
	plotTop    = 70
	plotBottom = 54
)

// Lines are told apart by colour and by the mark on their points.
var (
	lightColours = []string{"#0f62a8", "#b4450f", "#2c7a33", "#7b3f98", "#8a6d00"}
	darkColours  = []string{"#6db3f2", "#f5a06a", "#7fd08a", "#cfa0e8", "#e2c75a"}
)

// svg draws the plot. Colours follow the reader's light or dark mode.
func (p *Plot) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		plotWidth, plotHeight, plotWidth, plotHeight, html.EscapeString(p.Title))
	b.WriteString("<style>text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-size:15px;font-weight:600}.p{fill:#ffffff}.g{stroke:#d0d7de}.a{stroke:#57606a}.m{fill:#57606a}")
	style := func(colours []string) {
		for i, c := range colours {
			fmt.Fprintf(&b, ".l%d{stroke:%s}.f%d{fill:%s}", i, c, i, c)
		}
	}
	style(lightColours)
	b.WriteString("@media(prefers-color-scheme:dark){text{fill:#e6edf3}.p{fill:#0d1117}.g{stroke:#30363d}.a{stroke:#9198a1}.m{fill:#9198a1}")
	style(darkColours)
	b.WriteString("}</style>\n")
	fmt.Fprintf(&b, `<rect class="p" width="%d" height="%d" rx="6"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<text class="t" x="%d" y="26">%s</text>`+"\n", plotLeft, html.EscapeString(p.Title))

	var xs, ys []float64
	for _, l := range p.Lines {
		xs, ys = append(xs, l.X...), append(ys, l.Y...)
	}
	x := scaleOf(xs, p.LogX, plotLeft, plotWidth-plotRight)
	if !p.LogY {
		ys = append(ys, 0)
	}
	y := scaleOf(ys, p.LogY, plotHeight-plotBottom, plotTop)
	for _, v := range y.Ticks {
		at := y.At(v)
		fmt.Fprintf(&b, `<line class="g" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="m" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, plotWidth-plotRight, at, at, plotLeft-8, at+4, short(v))
	}
	for _, v := range x.Ticks {
		at := x.At(v)
		fmt.Fprintf(&b, `<line class="a" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="m" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, at, plotHeight-plotBottom, plotHeight-plotBottom+5, at, plotHeight-plotBottom+19, short(v))
	}
	fmt.Fprintf(&b, `<line class="a" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", plotLeft, plotWidth-plotRight, plotHeight-plotBottom, plotHeight-plotBottom)
	fmt.Fprintf(&b, `<text class="m" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (plotLeft+plotWidth-plotRight)/2, plotHeight-12, html.EscapeString(p.XAxis))
	fmt.Fprintf(&b, `<text class="m" transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (plotTop+plotHeight-plotBottom)/2, html.EscapeString(p.YAxis))

	legend := float64(plotLeft)
	for i, l := range p.Lines {
		c := i % len(lightColours)
		var points []plot.Point
		for j := range min(len(l.X), len(l.Y)) {
			p := plot.Point{X: x.At(l.X[j]), Y: y.At(l.Y[j])}
			points = append(points, p)
			if len(l.X) <= 40 {
				b.WriteString(mark(i, c, p.X, p.Y) + "\n")
			}
		}
		fmt.Fprintf(&b, `<path class="l%d" fill="none" stroke-width="2" d="%s"/>`+"\n", c, plot.Curve(points, 1))
		b.WriteString(mark(i, c, legend+5, 46))
		fmt.Fprintf(&b, `<text x="%.1f" y="50">%s</text>`+"\n", legend+16, html.EscapeString(l.Label))
		legend += 34 + 6.6*float64(len([]rune(l.Label)))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// mark is the sign of a line's points: a circle, a square, a diamond, and again.
func mark(line, colour int, x, y float64) string {
	switch line % 3 {
	case 0:
		return fmt.Sprintf(`<circle class="f%d" cx="%.1f" cy="%.1f" r="4"/>`, colour, x, y)
	case 1:
		return fmt.Sprintf(`<rect class="f%d" x="%.1f" y="%.1f" width="8" height="8"/>`, colour, x-4, y-4)
	}
	return fmt.Sprintf(`<path class="f%d" d="M%.1f %.1fl5 5-5 5-5-5z"/>`, colour, x, y-5)
}

// scaleOf is the scale of some values. Values that a scale cannot show are left out.
func scaleOf(values []float64, log bool, from, to float64) plot.Scale {
	values = slices.DeleteFunc(values, func(v float64) bool {
		return math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0
	})
	if len(values) == 0 {
		values = []float64{1}
	}
	if log {
		return plot.Logarithmic(slices.Min(values), slices.Max(values), from, to)
	}
	return plot.Linear(slices.Min(values), slices.Max(values), from, to)
}

// short writes a tick's value in few letters.
func short(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(v) >= u.size {
			return fmt.Sprintf("%.3g%s", v/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}
