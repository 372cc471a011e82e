package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/plot"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Limits of scans, which read the retained samples of one vehicle for its curve or its strip.
const (
	maxScans  = 2
	maxStrips = 1
)

// curve holds the recent speeds and verdicts of one vehicle. A live page keeps its curve, and adds
// the newest readings.
type curve struct {
	points   []speedPoint
	throttle throttleCurve
	begun    time.Time
	scanned
}

type scanned struct {
	Since   time.Time // all samples stored since then were read
	All     bool      // none are older
	Failed  bool
	Damaged bool
	Busy    bool // nothing was read, because of too many scans
}

type speedPoint struct {
	at      signal.UnixMilli
	kmh     float32
	driving string
}

func classOf(v vehicle.DrivingVerdict) string {
	switch {
	case v.Time == 0:
		return "none"
	case v.NotDriving:
		return "rest"
	}
	return [...]string{"none", "normal", "slow", "jam"}[v.State]
}

// note adds the newest speed in s, if it is newer than the last point.
func (k *curve) note(s *vehicle.State) {
	k.throttle.note(s)
	speed := s.Latest[signal.Speed]
	if o := s.Latest[signal.OBDSpeed]; o.Time > speed.Time {
		speed = o
	}
	if speed.Time == 0 || len(k.points) > 0 && speed.Time <= k.points[len(k.points)-1].at {
		return
	}
	k.points = append(k.points, speedPoint{speed.Time, speed.Value, classOf(s.Driving())})
	if len(k.points) > maxPoints {
		k.points = append(k.points[:0], k.points[maxPoints/4:]...)
	}
}

// shows reports whether the curve, which may be nil, was read and shows the sensors of the anomaly
// in s, or none if there is none.
func (k *curve) shows(s *vehicle.State) bool {
	alarm, _ := s.ThrottleAlarm()
	return k != nil && !k.Busy && alarm.Since == k.throttle.alarm.Since
}

type curveView struct {
	scanned
	Line       string
	Bands      []band
	Spells     []band // the newest Bands, newest first
	More       int    // not in Spells
	Levels     []level
	Axis       axis
	Read       readouts
	States     []string // CSS classes that occur
	Short      bool     // the readings begin later than an hour ago
	Throttle   throttleView
	Points     int
	Nothing    bool
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

const maxSpells = 12

// view returns the last hour, up to the newest reading.
func (k *curve) view() curveView {
	v := curveView{scanned: k.scanned, Throttle: k.throttle.view(), Nothing: !k.All && !k.Since.Before(k.begun)}
	points := k.points
	if len(points) < 2 {
		return v
	}
	till := points[len(points)-1].at
	for points[0].at < till.Add(-curveSpan) {
		points = points[1:]
	}
	from := points[0].at
	if from == till {
		return v
	}
	v.Points, v.Axis = len(points), newAxis(from.Time(), till.Time())
	sum := 0.0
	for _, p := range points {
		v.Most = max(v.Most, float64(p.kmh))
		sum += float64(p.kmh)
	}
	scale := plot.NewScale(max(20, v.Most+1), chartHeight, 0)
	v.Mean, v.Levels = sum/float64(len(points)), levelsOf(&scale)
	v.Short = till.Sub(from) < curveSpan-curveGap
	x := func(t signal.UnixMilli) float64 { return v.Axis.x(t.Time()) }
	v.Read = newReadouts(len(points), func(i int) (float64, string) {
		p := points[i]
		return x(p.at), fmt.Sprintf("%s UTC: %s km/h, %s", p.at.Time().UTC().Format("15:04:05"),
			inwords.Number(float64(p.kmh)), strings.ToLower(classNames[p.driving]))
	})
	var line []plot.Point
	var spans []plot.Span[signal.UnixMilli, string]
	for i, p := range points {
		gap := i > 0 && p.at.Sub(points[i-1].at) > curveGap
		line = append(line, plot.Point{X: x(p.at), Y: scale.At(float64(p.kmh)), Gap: gap})
		spans = plot.Extend(spans, p.at, p.driving, gap)
	}
	v.Line = plot.Curve(line, chartWidth/drawnPieces)
	for _, s := range spans {
		if !slices.Contains(v.States, s.Value) {
			v.States = append(v.States, s.Value)
		}
		v.Bands = append(v.Bands, band{s.Value, x(s.From), x(s.To) - x(s.From), s.From.Time(), s.To.Time()})
	}
	for i := range min(maxSpells, len(v.Bands)) {
		v.Spells = append(v.Spells, v.Bands[len(v.Bands)-1-i])
	}
	v.More = len(v.Bands) - len(v.Spells)
	return v
}
