package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/inwords"
	"carstate/internal/plot"
	"carstate/internal/vehicle"
)

// Limits of what is read and kept of a vehicle's past.
const (
	maxScans    = 2               // at once
	scanTime    = 2 * time.Second // one may take
	maxSamples  = 20_000          // of a vehicle, that one looks for
	maxPoints   = 20_000          // that a curve keeps, about 800 KB
	maxCurves   = 16              // that are kept, of the vehicles looked at last
	curveSpan   = time.Hour       // that is drawn
	curveGap    = 2 * time.Minute // without a reading, over which no line is drawn
	drawnPieces = 600             // of which only the lowest and the highest point are drawn
)

// curve is the recent past of one vehicle.
type curve struct {
	mu       sync.Mutex // guards what follows
	points   []speedPoint
	throttle throttleCurve
	begun    time.Time // when it was read
	since    time.Time // everything stored since was looked at
	all      bool      // that is all there is
	failed   bool      // it could not be read
	busy     bool      // others were being read
	used     time.Time
}

// speedPoint is one speed and how the car drove then.
type speedPoint struct {
	at      vehicle.UnixMilli
	kmh     float32
	driving string // its class; see classOf
}

// curves are those that were looked at last.
type curves struct {
	scans chan struct{}

	strips chan struct{} // being made

	mu  sync.Mutex // guards what follows
	all map[vehicle.ID]*curve
	// hours are the strips that were made last.
	hours map[vehicle.ID]strip
	// forgotten counts the vehicles that were forgotten: what was read
	// meanwhile may be of one of them, and is not kept.
	forgotten int
}

// classOf is how the pages call a driving verdict.
func classOf(v vehicle.DrivingVerdict) string {
	switch {
	case v.Time == 0:
		return "none"
	case v.NotDriving:
		return "rest"
	}
	return [...]string{"none", "normal", "slow", "jam"}[v.State]
}

// curve returns a vehicle's past, read anew unless some page keeps it up to date.
func (c *Console) curve(ctx context.Context, id vehicle.ID, s *vehicle.State) *curve {
	now := c.Now()
	c.Monitor.curves.mu.Lock()
	known, forgotten := c.Monitor.curves.all[id], c.Monitor.curves.forgotten
	c.Monitor.curves.mu.Unlock()
	if known != nil && known.touched(now) && known.draws(s) {
		return known
	}
	made := c.readCurve(ctx, id, s)
	made.used = now
	c.Monitor.curves.mu.Lock()
	defer c.Monitor.curves.mu.Unlock()
	if c.Monitor.curves.forgotten != forgotten {
		return made
	}
	if c.Monitor.curves.all == nil {
		c.Monitor.curves.all = make(map[vehicle.ID]*curve)
	}
	for len(c.Monitor.curves.all) >= maxCurves {
		var oldest vehicle.ID
		for other, x := range c.Monitor.curves.all {
			if y := c.Monitor.curves.all[oldest]; y == nil || x.lastUsed().Before(y.lastUsed()) {
				oldest = other
			}
		}
		delete(c.Monitor.curves.all, oldest)
	}
	c.Monitor.curves.all[id] = made
	return made
}

// forget drops what is kept of a vehicle's past.
func (k *curves) forget(id vehicle.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgotten++
	delete(k.all, id)
	delete(k.hours, id)
}

// readCurve is scan once there is a place for one more.
func (c *Console) readCurve(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	select {
	case c.Monitor.curves.scans <- struct{}{}:
		defer func() { <-c.Monitor.curves.scans }()
	case <-ctx.Done():
		return &curve{begun: c.Now(), since: c.Now(), busy: true}
	}
	return c.scan(ctx, id, now)
}

// scan runs the rules again over what is retained of a vehicle. The verdicts
// of the past are stored nowhere; at its beginning a curve knows less than the
// service did.
func (c *Console) scan(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	made := &curve{begun: c.Now(), since: c.Now()}
	samples, since, all, err := c.Recent(ctx, id, maxSamples)
	if err != nil {
		c.Log.Warn("the retained telemetry of a vehicle cannot be read", "error", err)
		made.failed = true
		return made
	}
	made.since, made.all = since, all
	made.throttle.alarm, made.throttle.stands = now.ThrottleAlarm()
	var s vehicle.State
	for _, x := range samples {
		s = vehicle.Observe(s, x)
		made.note(&s)
	}
	return made
}

// note adds the newest speed of a state; mu is held, or nobody else has the curve.
func (k *curve) note(s *vehicle.State) {
	k.throttle.note(s)
	speed := s.Latest[vehicle.Speed]
	if o := s.Latest[vehicle.OBDSpeed]; o.Time > speed.Time {
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

// add is note for a curve that others have too.
func (k *curve) add(s *vehicle.State, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = now
	k.note(s)
}

// curveFresh is how long a curve is good that nobody has added to.
const curveFresh = 5 * time.Second

// draws reports whether the curve has the sensors of the anomaly that stands now.
func (k *curve) draws(s *vehicle.State) bool {
	alarm, stands := s.ThrottleAlarm()
	k.mu.Lock()
	defer k.mu.Unlock()
	return stands == k.throttle.stands && alarm.Since == k.throttle.alarm.Since
}

// touched reports whether the curve is being kept up to date.
func (k *curve) touched(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return now.Sub(k.used) < curveFresh
}

func (k *curve) lastUsed() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used
}

// curveView is a curve as the page draws it.
type curveView struct {
	Line       string
	Bands      []band
	Spells     []band // the same as text, newest first
	More       int    // spells that are not listed
	Levels     []level
	Axis       axis
	Read       readouts
	States     []string // classes that occur
	Short      bool     // the readings begin later than an hour ago
	Throttle   throttleView
	Points     int
	Since      time.Time
	All        bool
	Failed     bool
	Busy       bool // others were being read
	Nothing    bool // there was no time to read anything
	Mean, Most float64
}

// band is a time in which the verdict did not change.
type band struct {
	Class, Name string
	X, Width    float64
	From, Till  time.Time
}

var classNames = map[string]string{
	"normal": "Normal driving", "slow": "Slow driving", "jam": "Traffic jam", "rest": "Not driving", "none": "No verdict",
	"anomaly": "Anomaly", "healthy": "Normal",
}

// maxSpells is how many bands are listed as text.
const maxSpells = 12

// view draws the last hour up to the newest reading.
func (k *curve) view() curveView {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := curveView{Throttle: k.throttle.view(), Since: k.since, All: k.all, Failed: k.failed, Busy: k.busy, Nothing: !k.all && !k.since.Before(k.begun)}
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
	scale := plot.NewScale(0, max(20, v.Most+1), chartHeight, 0, false)
	v.Mean, v.Levels = sum/float64(len(points)), levelsOf(&scale)
	v.Short = till.Sub(from) < curveSpan-curveGap
	x := func(t vehicle.UnixMilli) float64 { return v.Axis.x(t.Time()) }
	v.Read = newReadouts(len(points), func(i int) (float64, string) {
		p := points[i]
		return x(p.at), fmt.Sprintf("%s UTC: %s km/h, %s", p.at.Time().UTC().Format("15:04:05"),
			inwords.Number(float64(p.kmh)), strings.ToLower(classNames[p.driving]))
	})
	var line []plot.Point
	var spans []plot.Span[vehicle.UnixMilli, string]
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
		v.Bands = append(v.Bands, band{s.Value, classNames[s.Value], x(s.From), x(s.To) - x(s.From), s.From.Time(), s.To.Time()})
	}
	for i := range min(maxSpells, len(v.Bands)) {
		v.Spells = append(v.Spells, v.Bands[len(v.Bands)-1-i])
	}
	v.More = len(v.Bands) - len(v.Spells)
	return v
}
