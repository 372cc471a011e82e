package road

import (
	"math"
	"time"

	"carstate/internal/vehicle"
)

// Limits of what counts as a fix.
const (
	// worstAccuracyMetres is the worst accuracy of a fix that can name a stretch.
	worstAccuracyMetres = 50
	// fastestMetresPerSecond is 300 km/h: no car jumps farther between two fixes.
	fastestMetresPerSecond = 300 / 3.6
	// receiverMetres is what a receiver may be off without having jumped.
	receiverMetres = 100
)

// How a way is followed.
const (
	// headingMetres is the way that a heading is taken from, long enough for a
	// receiver's noise.
	headingMetres = 20
	// hysteresisDegrees is how far beyond its octant a heading must be to leave it.
	hysteresisDegrees = 10
	// compassKmh is the speed above which a receiver's own heading is one.
	compassKmh = 10
	// standsKmh is the speed below which a car stands: a receiver's noise then neither
	// turns it nor takes it to another stretch.
	standsKmh = 1
	// partMetres is how finely the line between two fixes is cut into stretches.
	partMetres = 25
	// measuredMetres is the distance between two fixes above which it tells better
	// than the speeds how far a car has come.
	measuredMetres = 40
	// mostGapMetres is the longest line between two fixes that is taken for the way:
	// 10 s at 180 km/h. A longer one leaves the road, as in a tunnel.
	mostGapMetres = 500
	// mostGap is the longest time between two fixes of one way.
	mostGap = 75 * time.Second
	// behindMetres is how much of a car's way is remembered.
	behindMetres = 300
)

// Dropped is why a position was no fix.
type Dropped uint8

// The reasons.
const (
	Incomplete Dropped = iota // latitude without longitude, or the reverse
	NullIsland                // 0/0, as receivers say that have no fix
	Inaccurate                // an accuracy worse than 50 m
	Jump                      // farther from the last fix than 300 km/h allow
	NumDropped
)

// String names the reason as the metrics spell it.
func (d Dropped) String() string {
	return [...]string{"incomplete", "null_island", "inaccurate", "jump"}[d]
}

// fix is a position that counts.
type fix struct {
	latitude, longitude float64
	time                vehicle.UnixMilli
	kmh                 float32 // negative: not known
	heading             float32 // degrees; negative: not known
}

// fixOf takes the fix from a sample. It reports whether the sample has a position at
// all, and a reason if that is none.
func fixOf(s *vehicle.State, x *vehicle.Sample) (f fix, has bool, why Dropped) {
	latitude, north := x.Value(vehicle.CurrentLatitude)
	longitude, east := x.Value(vehicle.CurrentLongitude)
	if !north && !east {
		return f, false, 0
	}
	if !north || !east {
		return f, true, Incomplete
	}
	if latitude == 0 && longitude == 0 {
		return f, true, NullIsland
	}
	if accuracy, ok := x.Value(vehicle.CurrentAccuracy); ok && accuracy > worstAccuracyMetres {
		return f, true, Inaccurate
	}
	f = fix{latitude: float64(latitude), longitude: float64(longitude), time: x.Time, kmh: speedAt(s, x), heading: -1}
	if heading, ok := x.Value(vehicle.CurrentHeading); ok && f.kmh >= compassKmh {
		f.heading = heading
	}
	// After mostGap a way begins here in any case: of two fixes that contradict each
	// other the first may have been the wrong one.
	if w := &s.Way; w.Time != 0 && f.time.Sub(w.Time) <= mostGap {
		metres := math.Hypot(offset(float64(w.Latitude), float64(w.Longitude), f.latitude, f.longitude))
		if metres > receiverMetres+fastestMetresPerSecond*f.time.Sub(w.Time).Seconds() {
			return f, true, Jump
		}
	}
	return f, true, NumDropped
}

// speedHolds is how old a speed may be that belongs to a fix.
const speedHolds = 10 * time.Second

// speedAt is the car's speed at a sample, in km/h; negative if it is not known.
func speedAt(s *vehicle.State, x *vehicle.Sample) float32 {
	for _, g := range [...]vehicle.Signal{vehicle.Speed, vehicle.OBDSpeed} {
		if v, ok := x.Value(g); ok {
			return v
		}
	}
	last := s.Latest[vehicle.Speed]
	if o := s.Latest[vehicle.OBDSpeed]; o.Time > last.Time {
		last = o
	}
	if last.Time != 0 && x.Time.Sub(last.Time) <= speedHolds {
		return last.Value
	}
	return -1
}

// part is what a car drove on one stretch between two fixes.
type part struct {
	stretch         vehicle.Stretch
	metres, seconds float32
	// before is the way's step on the stretch without this part, if it held one; else
	// from is the step that the car came from.
	before, from vehicle.WayStep
}

// parts are those between two fixes, in order.
type parts struct {
	n    int
	part [mostGapMetres/partMetres + 1]part
}

// follow extends a way to a fix. It adds to driven what was driven since the last one:
// nothing if the way begins here or its direction is not known yet.
func follow(w *vehicle.Way, f fix, driven *parts) {
	step := f.time.Sub(w.Time)
	east, north := offset(float64(w.Latitude), float64(w.Longitude), f.latitude, f.longitude)
	line := math.Hypot(east, north)
	if w.Time == 0 || step > mostGap || line > mostGapMetres {
		*w = vehicle.Way{AnchorLatitude: float32(f.latitude), AnchorLongitude: float32(f.longitude)}
	}
	turn(w, f)
	if w.Time != 0 && w.Heading {
		metres := line
		if line < measuredMetres && w.SpeedKmh >= 0 && f.kmh >= 0 {
			metres = float64(w.SpeedKmh+f.kmh) / 2 / 3.6 * step.Seconds()
		}
		metres = min(metres, fastestMetresPerSecond*step.Seconds())
		if w.Count > 0 && line < measuredMetres && stands(w.SpeedKmh) && stands(f.kmh) {
			driven.n, driven.part[0] = 1, part{stretch: w.Steps[0].Stretch, metres: float32(metres), seconds: float32(step.Seconds())}
		} else {
			driven.cut(w, f, line, metres, step.Seconds())
		}
		for i := range driven.part[:driven.n] {
			extend(w, &driven.part[i])
		}
		trim(w)
	}
	w.Latitude, w.Longitude, w.Time, w.SpeedKmh = float32(f.latitude), float32(f.longitude), f.time, f.kmh
}

// stands reports whether a speed is known to be that of a car that stands.
func stands(kmh float32) bool { return kmh >= 0 && kmh < standsKmh }

// turn takes the direction of travel from the receiver, or from the last metres driven.
func turn(w *vehicle.Way, f fix) {
	if w.Heading && stands(f.kmh) {
		return
	}
	heading := float64(f.heading)
	east, north := offset(float64(w.AnchorLatitude), float64(w.AnchorLongitude), f.latitude, f.longitude)
	far := math.Hypot(east, north) >= headingMetres
	if far {
		w.AnchorLatitude, w.AnchorLongitude = float32(f.latitude), float32(f.longitude)
	}
	if heading < 0 {
		if !far {
			return
		}
		heading = headingOf(east, north)
	}
	off := math.Abs(math.Remainder(heading-octantDegrees*float64(w.Octant), 360))
	if !w.Heading || off > octantDegrees/2+hysteresisDegrees {
		w.Octant, w.Heading = octantOf(heading), true
	}
}

// cut divides the line from a way's last fix to the next into stretches.
func (d *parts) cut(w *vehicle.Way, f fix, line, metres, seconds float64) {
	n := min(max(1, int(math.Ceil(line/partMetres))), len(d.part))
	fromLatitude, fromLongitude := float64(w.Latitude), float64(w.Longitude)
	latitude, longitude := f.latitude-fromLatitude, math.Remainder(f.longitude-fromLongitude, 360)
	for i := range n {
		along := (float64(i) + 0.5) / float64(n)
		s := stretchAt(fromLatitude+along*latitude, fromLongitude+along*longitude, w.Octant)
		if d.n == 0 || d.part[d.n-1].stretch != s {
			d.part[d.n].stretch = s
			d.n++
		}
		p := &d.part[d.n-1]
		p.metres += float32(metres / float64(n))
		p.seconds += float32(seconds / float64(n))
	}
}

// extend adds a part to the steps of a way. A stretch that the way holds already comes to
// the front and goes on: a car that goes back and forth is on one passage.
func extend(w *vehicle.Way, p *part) {
	i := uint8(0)
	for i < w.Count && w.Steps[i].Stretch != p.stretch {
		i++
	}
	if i < w.Count {
		p.before = w.Steps[i]
	} else {
		p.before.Stretch = p.stretch
		if w.Count > 0 {
			p.from = w.Steps[0]
		}
		w.Count = min(w.Count+1, vehicle.WaySteps)
		i = w.Count - 1
	}
	copy(w.Steps[1:i+1], w.Steps[:i])
	w.Steps[0] = vehicle.WayStep{Stretch: p.stretch, Metres: p.before.Metres + p.metres, Seconds: p.before.Seconds + p.seconds}
}

// trim forgets what lies farther behind than behindMetres. The newest step stays whole.
func trim(w *vehicle.Way) {
	metres := w.Steps[0].Metres
	for i := uint8(1); i < w.Count; i++ {
		left := behindMetres - metres
		if left <= 0 {
			clear(w.Steps[i:])
			w.Count = i
			return
		}
		if s := &w.Steps[i]; s.Metres > left {
			s.Metres, s.Seconds = left, s.Seconds*left/s.Metres
		}
		metres += w.Steps[i].Metres
	}
}
