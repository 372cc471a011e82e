package evaluate

import (
	"fmt"
	"html"
	"strings"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/plot"
)

// Track has a drive's times without pauses.
type Track struct {
	name   string
	speeds []speedAt
	bands  [3][]band // verdicts, labels, throttle anomalies
	pauses []time.Duration
	end    time.Duration
}

type speedAt struct {
	at    time.Duration
	kmh   float32
	after bool // a pause: no line leads to it
}

// band has a state, or 1 for an anomaly; 0 is none.
type band = plot.Span[time.Duration, driving.State]

const (
	verdictBand = iota
	labelBand
	anomalyBand
)

func (t *Track) add(at time.Duration, pause bool, r *drivelog.Row, verdict driving.State, anomaly bool) {
	if pause {
		t.pauses = append(t.pauses, at)
	}
	if v, ok := r.Readings.Speed(); ok {
		t.speeds = append(t.speeds, speedAt{at, v, pause})
	}
	var broken driving.State
	if anomaly {
		broken = 1
	}
	for i, state := range [...]driving.State{verdictBand: verdict, labelBand: r.Label, anomalyBand: broken} {
		t.bands[i] = plot.Extend(t.bands[i], at, state, false)
	}
	t.end = at
}

const (
	pageWidth   = 1200
	pageHeader  = 44
	pageLeft    = 56
	pageRight   = 16
	panelHeight = 210
	panelTop    = 26
	panelCurve  = 130
	stripHeight = 8
)

// bandColours are for no verdict, normal, slow and jam. Their brightness differs, for colour-blind
// readers.
var bandColours = [...]string{"#eeeeee", "#dff0e3", "#fbe3a6", "#f0a39b"}

const (
	lineColour    = "#1f3a5f"
	anomalyColour = "#8b1a8b"
	textColour    = "#333333"
)

type page struct{ b strings.Builder }

func newPage(title string, height int) *page {
	p := &page{}
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="sans-serif" font-size="11" fill="%s">`,
		pageWidth, height, pageWidth, height, textColour)
	p.put(`<title>%s</title>`, html.EscapeString(title))
	p.put(`<rect width="%d" height="%d" fill="#ffffff"/>`, pageWidth, height)
	return p
}

func (p *page) put(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *page) legend(x int, mark func(x int, state driving.State)) int {
	for state, name := range [...]string{"no verdict", "normal driving", "slow driving", "traffic jam"} {
		mark(x, driving.State(state))
		p.put(`<text x="%d" y="25">%s</text>`, x+19, name)
		x += 125
	}
	return x
}

func (p *page) end() string {
	p.put(`</svg>`)
	return p.b.String()
}

func Plot(tracks []Track) string {
	p := newPage("Speed over time, with driving verdicts", pageHeader+panelHeight*len(tracks))
	x := p.legend(pageLeft, func(x int, state driving.State) {
		p.put(`<rect x="%d" y="14" width="14" height="14" fill="%s" stroke="#999999" stroke-width="0.5"/>`, x,
			bandColours[state])
	})
	p.put(`<rect x="%d" y="18" width="14" height="%d" fill="%s"/>`, x, stripHeight, anomalyColour)
	p.put(`<text x="%d" y="25">throttle anomaly</text>`, x+19)
	p.put(`<text x="%d" y="25" text-anchor="end">below a plot: label, anomalies; dashed: a pause, cut out</text>`,
		pageWidth-pageRight)
	for i := range tracks {
		p.panel(&tracks[i], pageHeader+panelHeight*i)
	}
	return p.end()
}

func (p *page) panel(t *Track, top int) {
	y0 := top + panelTop
	bottom := y0 + panelCurve
	x := func(at time.Duration) float64 {
		return pageLeft + (pageWidth-pageLeft-pageRight)*at.Seconds()/max(t.end.Seconds(), 1e-9)
	}
	fastest := float32(20)
	for _, s := range t.speeds {
		fastest = max(fastest, s.kmh)
	}
	y := plot.NewScale(float64(fastest), float64(bottom), float64(y0))

	p.put(`<g><text x="%d" y="%d" font-weight="bold">%s</text>`, pageLeft, y0-9, html.EscapeString(t.name))
	p.bands(t.bands[verdictBand], x, y0, panelCurve, bandColours[:])
	p.bands(t.bands[labelBand], x, bottom+2, stripHeight, append([]string{""}, bandColours[1:]...))
	p.bands(t.bands[anomalyBand], x, bottom+3+stripHeight, stripHeight, []string{"", anomalyColour})
	for _, kmh := range y.Ticks {
		p.put(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#bbbbbb" stroke-width="0.5"/>`, pageLeft,
			pageWidth-pageRight, y.At(kmh), y.At(kmh))
		p.put(`<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`, pageLeft-6, y.At(kmh)+4, kmh)
	}
	p.put(`<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">speed, km/h</text>`, y0+panelCurve/2,
		y0+panelCurve/2)
	for _, at := range t.pauses {
		p.put(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#666666" stroke-dasharray="3 3"/>`, x(at), x(at), y0,
			bottom)
	}
	p.minutes(t.end, x, bottom+2*stripHeight+4)
	curve := make([]plot.Point, len(t.speeds))
	for i, s := range t.speeds {
		curve[i] = plot.Point{X: x(s.at), Y: y.At(float64(s.kmh)), Gap: s.after}
	}
	p.put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.2"/>`, plot.Curve(curve, 1), lineColour)
	p.put(`</g>`)
}

func (p *page) bands(bands []band, x func(time.Duration) float64, top, height int, colours []string) {
	for _, b := range bands {
		if c := colours[b.Value]; c != "" && b.To > b.From {
			p.put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, x(b.From), top,
				max(x(b.To)-x(b.From), 0.5), height, c)
		}
	}
}

func (p *page) minutes(end time.Duration, x func(time.Duration) float64, top int) {
	every := time.Minute
	for _, m := range []time.Duration{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1440} {
		if every = m * time.Minute; end/every <= 14 {
			break
		}
	}
	for at := time.Duration(0); at <= end && at/every <= 100; at += every {
		p.put(`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(at), top+10, int(at.Minutes()))
	}
	p.put(`<text x="%d" y="%d" text-anchor="end">minutes driven</text>`, pageWidth-pageRight, top+24)
}
