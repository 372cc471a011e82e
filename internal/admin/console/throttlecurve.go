package console

import (
	"fmt"

	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/plot"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// throttleCurve holds readings of the two sensors of a throttle anomaly, at most maxPoints, about
// 480 KB; without an anomaly none.
type throttleCurve struct {
	alarm  throttle.Alarm
	points []throttlePoint
}

type throttlePoint struct {
	at   signal.UnixMilli
	x, y float32
}

func (k *throttleCurve) note(s *vehicle.State) {
	if k.alarm.Since == 0 {
		return
	}
	x, y := s.Latest[k.alarm.X], s.Latest[k.alarm.Y]
	at := max(x.Time, y.Time)
	if x.Time == 0 || y.Time == 0 || len(k.points) > 0 && at <= k.points[len(k.points)-1].at {
		return
	}
	k.points = append(k.points, throttlePoint{at, x.Value, y.Value})
	if len(k.points) > maxPoints {
		k.points = append(k.points[:0], k.points[maxPoints/4:]...)
	}
}

type throttleView struct {
	throttle.Alarm
	Single             bool
	LineX, LineY, Band string // empty: there is nothing to draw
	SinceX             float64
	SinceShown         bool // the anomaly began in the time that is drawn
	Levels             []level
	Axis               axis
	Read               readouts
}

func (k *throttleCurve) view() (v throttleView) {
	points := k.points
	if len(points) < 2 {
		return v
	}
	last := points[len(points)-1].at
	for points[0].at < last.Add(-curveSpan) {
		points = points[1:]
	}
	if points[0].at == last {
		return v
	}
	a := &k.alarm
	v = throttleView{Alarm: *a, Single: a.X == a.Y, Axis: newAxis(points[0].at.Time(), last.Time())}
	high := 10.0
	for _, p := range points {
		high = max(high, float64(p.x), float64(p.y))
	}
	scale := plot.NewScale(high+1, chartHeight, 0)
	v.Levels = levelsOf(&scale)
	v.SinceX, v.SinceShown = v.Axis.x(a.Since.Time()), a.Since >= points[0].at
	lines := make([][]plot.Point, 4) // X, Y, and the upper and lower bound of normal Y
	for i, p := range points {
		gap := i > 0 && p.at.Sub(points[i-1].at) > curveGap
		expected := a.Expected(float64(p.x))
		for n, value := range [...]float64{float64(p.x), float64(p.y), expected + a.Free, expected - a.Free} {
			y := scale.At(max(0, min(value, scale.Top())))
			lines[n] = append(lines[n], plot.Point{X: v.Axis.x(p.at.Time()), Y: y, Gap: gap})
		}
	}
	const column = chartWidth / drawnPieces
	v.LineX, v.LineY = plot.Curve(lines[0], column), plot.Curve(lines[1], column)
	if v.Banded {
		v.Band = plot.Between(lines[2], lines[3], column)
	}
	v.Read = newReadouts(len(points), func(i int) (float64, string) {
		p := points[i]
		text := fmt.Sprintf("%s UTC: %s %s", p.at.Time().UTC().Format("15:04:05"), v.NameX,
			inwords.Measure(float64(p.x), "percent"))
		if !v.Single {
			text += fmt.Sprintf(", %s %s", v.NameY, inwords.Measure(float64(p.y), "percent"))
		}
		if v.Banded {
			text += fmt.Sprintf(", expected %s", inwords.Measure(max(0, min(a.Expected(float64(p.x)), 100)), "percent"))
		}
		return v.Axis.x(p.at.Time()), text
	})
	return v
}
