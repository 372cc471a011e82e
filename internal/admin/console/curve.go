package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/plot"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

const (
	curveSpan = time.Hour
	curveGap  = 2 * time.Minute // without a reading, after which the line is interrupted
	maxSpells = 12
)

func classOf(v vehicle.DrivingVerdict) string {
	switch {
	case v.Time == 0:
		return "none"
	case v.NotDriving:
		return "rest"
	}
	return [...]string{"none", "normal", "slow", "jam"}[v.State]
}

type curveView struct {
	scanned
	chart
	Line       string
	Bands      []band
	Spells     []band   // the newest Bands, newest first
	More       int      // Bands that are not in Spells
	States     []string // CSS classes that occur
	Short      bool     // the readings begin later than an hour ago
	Throttle   throttleView
	Points     int
	Mean, Most float64
}

type band struct {
	Class      string
	X, Width   float64
	From, Till time.Time
}

var classNames = map[string]string{
	"normal": "Normal driving", "slow": "Slow driving", "jam": "Traffic jam", "rest": "Not driving",
	"none":    "No verdict",
	"anomaly": "Anomaly", "healthy": "Throttle normal",
}

func (t trail[V]) chart(high float64) chart {
	return newChart(t[0].at.Time(), t[len(t)-1].at.Time(), high)
}

func (t trail[V]) gap(i int) bool { return i > 0 && t[i].at.Sub(t[i-1].at) > curveGap }

func (k *curve) view() curveView {
	v := curveView{scanned: k.scanned, Throttle: k.throttleView()}
	points := k.speeds.lastHour()
	if points == nil {
		return v
	}
	sum := 0.0
	for _, p := range points {
		v.Most = max(v.Most, float64(p.value.kmh))
		sum += float64(p.value.kmh)
	}
	v.Points, v.Mean = len(points), sum/float64(len(points))
	v.chart = points.chart(max(20, v.Most+1))
	v.Short = v.Till.Sub(v.From) < curveSpan-curveGap
	v.say(len(points), "15:04:05", func(i int) (time.Time, string) {
		p := points[i]
		return p.at.Time(), fmt.Sprintf("%s km/h, %s", inwords.Number(float64(p.value.kmh)),
			strings.ToLower(classNames[p.value.class]))
	})
	var line []plot.Point
	var spans []plot.Span[time.Time, string]
	for i, p := range points {
		line = append(line, v.point(p.at.Time(), float64(p.value.kmh), points.gap(i)))
		spans = plot.Extend(spans, p.at.Time(), p.value.class, points.gap(i))
	}
	v.Line = plot.Curve(line, chartWidth/drawnPieces)
	for _, s := range spans {
		if !slices.Contains(v.States, s.Value) {
			v.States = append(v.States, s.Value)
		}
		v.Bands = append(v.Bands, band{s.Value, v.x(s.From), v.x(s.To) - v.x(s.From), s.From, s.To})
	}
	v.Spells = slices.Clone(v.Bands[max(0, len(v.Bands)-maxSpells):])
	slices.Reverse(v.Spells)
	v.More = len(v.Bands) - len(v.Spells)
	return v
}

type throttleView struct {
	throttle.Alarm
	chart
	Single             bool
	LineX, LineY, Band string // empty: there is nothing to draw
	SinceX             float64
	SinceShown         bool // the anomaly began in the time that is drawn
}

func (k *curve) throttleView() (v throttleView) {
	points := k.positions.lastHour()
	if points == nil {
		return v
	}
	high := 10.0
	for _, p := range points {
		high = max(high, float64(p.value.x), float64(p.value.y))
	}
	v = throttleView{Alarm: k.alarm, Single: k.alarm.X == k.alarm.Y, chart: points.chart(high + 1)}
	v.SinceX, v.SinceShown = v.x(v.Since.Time()), v.Since >= points[0].at
	lines := make([][]plot.Point, 4) // X, Y, and the upper and lower bound of normal Y
	for i, p := range points {
		x, y := float64(p.value.x), float64(p.value.y)
		expected := v.Expected(x)
		for n, value := range [...]float64{x, y, expected + v.Free, expected - v.Free} {
			shown := max(0, min(value, v.scale.Top()))
			lines[n] = append(lines[n], v.point(p.at.Time(), shown, points.gap(i)))
		}
	}
	const column = chartWidth / drawnPieces
	v.LineX, v.LineY = plot.Curve(lines[0], column), plot.Curve(lines[1], column)
	if v.Banded {
		v.Band = plot.Between(lines[2], lines[3], column)
	}
	v.say(len(points), "15:04:05", func(i int) (time.Time, string) {
		x, y := float64(points[i].value.x), float64(points[i].value.y)
		text := v.NameX + " " + inwords.Measure(x, "percent")
		if !v.Single {
			text += fmt.Sprintf(", %s %s", v.NameY, inwords.Measure(y, "percent"))
		}
		if v.Banded {
			text += ", expected " + inwords.Measure(max(0, min(v.Expected(x), 100)), "percent")
		}
		return points[i].at.Time(), text
	})
	return v
}
