package main

import (
	"fmt"
	"html"
	"os"
	"strings"
	"time"

	"carstate/internal/lab/drivelog"
	"carstate/internal/vehicle"
)

// track is what a plot shows of one drive, over the time driven: pauses are cut
// out, and marked.
type track struct {
	name   string
	speeds []speedAt
	bands  [3][]band // verdicts, labels, throttle anomalies
	pauses []time.Duration
	end    time.Duration
}

type speedAt struct {
	at    time.Duration
	kmh   float32
	after bool // a pause: no line leads here
}

// band is a time in which one thing was said, 0 for nothing.
type band struct {
	from, to time.Duration
	state    vehicle.DrivingState
}

// The rows of bands.
const (
	verdictBand = iota
	labelBand
	anomalyBand
)

// add notes a row and what was said at it, which holds until the next row.
func (t *track) add(at time.Duration, pause bool, r *drivelog.Row, verdict vehicle.DrivingState, anomaly bool) {
	if pause {
		t.pauses = append(t.pauses, at)
	}
	v, ok := r.Readings.Value(vehicle.Speed)
	if !ok {
		v, ok = r.Readings.Value(vehicle.OBDSpeed)
	}
	if ok {
		t.speeds = append(t.speeds, speedAt{at, v, pause})
	}
	var broken vehicle.DrivingState
	if anomaly {
		broken = 1
	}
	for i, state := range [...]vehicle.DrivingState{verdictBand: verdict, labelBand: r.Label, anomalyBand: broken} {
		n := len(t.bands[i])
		if n > 0 {
			t.bands[i][n-1].to = at
		}
		if n == 0 || t.bands[i][n-1].state != state {
			t.bands[i] = append(t.bands[i], band{at, at, state})
		}
	}
	t.end = at
}

// The page, in the units of the drawing.
const (
	plotWidth   = 1200
	plotLeft    = 56
	plotRight   = 16
	plotHeader  = 44
	panelHeight = 210
	panelTop    = 26  // to the top of the plot, below the name
	panelPlot   = 130 // the height of the plot itself
	stripHeight = 8   // of labels and anomalies, below the plot
)

// bandColours are those of no verdict, normal, slow and jam; light, so that the
// line stays readable, and far enough apart in brightness to tell without hue.
var bandColours = [...]string{"#eeeeee", "#dff0e3", "#fbe3a6", "#f0a39b"}

const (
	lineColour    = "#1f3a5f"
	anomalyColour = "#8b1a8b"
	textColour    = "#333333"
)

// writePlot writes the page.
func writePlot(name, svg string) error {
	if err := os.WriteFile(name, []byte(svg), 0o644); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// plot draws one panel a drive, below each other, on one page.
func plot(tracks []track) string {
	p := &page{}
	height := plotHeader + panelHeight*len(tracks)
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="sans-serif" font-size="11" fill="%s">`,
		plotWidth, height, plotWidth, height, textColour)
	p.put(`<title>Speed over time, with driving verdicts</title>`)
	p.put(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, height)
	x := plotLeft
	for state, name := range [...]string{"no verdict", "normal driving", "slow driving", "traffic jam"} {
		p.put(`<rect x="%d" y="14" width="14" height="14" fill="%s" stroke="#999999" stroke-width="0.5"/>`, x, bandColours[state])
		p.put(`<text x="%d" y="25">%s</text>`, x+19, name)
		x += 125
	}
	p.put(`<rect x="%d" y="18" width="14" height="%d" fill="%s"/>`, x, stripHeight, anomalyColour)
	p.put(`<text x="%d" y="25">throttle anomaly</text>`, x+19)
	p.put(`<text x="%d" y="25" text-anchor="end">below a plot: label, anomalies; dashed: a pause, cut out</text>`, plotWidth-plotRight)
	for i := range tracks {
		p.panel(&tracks[i], plotHeader+panelHeight*i)
	}
	p.put(`</svg>`)
	return p.b.String()
}

type page struct{ b strings.Builder }

func (p *page) put(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// panel draws one drive.
func (p *page) panel(t *track, top int) {
	y0 := top + panelTop
	bottom := y0 + panelPlot
	wide := float64(plotWidth - plotLeft - plotRight)
	x := func(at time.Duration) float64 {
		if t.end == 0 {
			return plotLeft
		}
		return plotLeft + wide*at.Seconds()/t.end.Seconds()
	}
	fastest := float32(20)
	for _, s := range t.speeds {
		fastest = max(fastest, s.kmh)
	}
	step := speedStep(fastest)
	scale := float64(panelPlot) / float64(step*ceil(fastest, step))
	y := func(kmh float32) float64 { return float64(bottom) - scale*float64(kmh) }

	p.put(`<g><text x="%d" y="%d" font-weight="bold">%s</text>`, plotLeft, y0-9, html.EscapeString(t.name))
	p.bands(t.bands[verdictBand], x, y0, panelPlot, func(s vehicle.DrivingState) string { return bandColours[s] })
	p.bands(t.bands[labelBand], x, bottom+2, stripHeight, func(s vehicle.DrivingState) string {
		if s == 0 {
			return ""
		}
		return bandColours[s]
	})
	p.bands(t.bands[anomalyBand], x, bottom+3+stripHeight, stripHeight, func(s vehicle.DrivingState) string {
		if s == 0 {
			return ""
		}
		return anomalyColour
	})
	for kmh := 0; kmh <= step*ceil(fastest, step); kmh += step {
		p.put(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#bbbbbb" stroke-width="0.5"/>`, plotLeft, plotWidth-plotRight, y(float32(kmh)), y(float32(kmh)))
		p.put(`<text x="%d" y="%.1f" text-anchor="end">%d</text>`, plotLeft-6, y(float32(kmh))+4, kmh)
	}
	p.put(`<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">speed, km/h</text>`, y0+panelPlot/2, y0+panelPlot/2)
	for _, at := range t.pauses {
		p.put(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#666666" stroke-dasharray="3 3"/>`, x(at), x(at), y0, bottom)
	}
	p.minutes(t.end, x, bottom+2*stripHeight+4)
	p.line(t.speeds, x, y)
	p.put(`</g>`)
}

// bands draws a row of coloured times; those without a colour are left out.
func (p *page) bands(bands []band, x func(time.Duration) float64, top, height int, colour func(vehicle.DrivingState) string) {
	for _, b := range bands {
		if c := colour(b.state); c != "" && b.to > b.from {
			p.put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, x(b.from), top, max(x(b.to)-x(b.from), 0.5), height, c)
		}
	}
}

// minutes draws the time axis.
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
	p.put(`<text x="%d" y="%d" text-anchor="end">minutes driven</text>`, plotWidth-plotRight, top+24)
}

// line draws the speed. Of all points in one column of pixels the lowest and the
// highest are drawn: no drive makes a page that no browser opens.
func (p *page) line(speeds []speedAt, x func(time.Duration) float64, y func(float32) float64) {
	for i := 0; i < len(speeds); {
		var d strings.Builder
		letter := "M"
		for first := true; i < len(speeds) && (first || !speeds[i].after); first = false {
			lo, hi, column := speeds[i], speeds[i], int(x(speeds[i].at))
			for i++; i < len(speeds) && !speeds[i].after && int(x(speeds[i].at)) == column; i++ {
				if s := speeds[i]; s.kmh < lo.kmh {
					lo = s
				} else if s.kmh > hi.kmh {
					hi = s
				}
			}
			if hi.at < lo.at {
				lo, hi = hi, lo
			}
			fmt.Fprintf(&d, "%s%.1f %.1f", letter, x(lo.at), y(lo.kmh))
			letter = "L"
			if hi != lo {
				fmt.Fprintf(&d, "L%.1f %.1f", x(hi.at), y(hi.kmh))
			}
		}
		p.put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.2"/>`, d.String(), lineColour)
	}
}

// speedStep is a distance between grid lines that makes five of them or fewer.
func speedStep(fastest float32) int {
	for _, step := range []int{10, 20, 30, 50} {
		if ceil(fastest, step) <= 5 {
			return step
		}
	}
	return 100
}

// ceil is how many steps hold a speed.
func ceil(kmh float32, step int) int {
	n := int(kmh) / step
	if float32(n*step) < kmh {
		n++
	}
	return n
}
