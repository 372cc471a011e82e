package road

import (
	"math"
	"time"

	"example.org/carstate/internal/vehicle"
)

// Limits for accepting a reported position as a fix, a position that is used.
const (
	// worstAccuracyMetres is the worst accuracy, in metres, with which a position can identify
	// a stretch of road.
	worstAccuracyMetres = 50
	// fastestMetresPerSecond is 300 km/h, in m/s: the highest speed that a car can have between two
	// positions.
	fastestMetresPerSecond = 300 / 3.6
	// halvesWithin is the longest time between a latitude and a longitude that are one position.
	halvesWithin = time.Second
	// receiverMetres allows for the errors of receivers. A position is accepted if its distance
	// from the last accepted one is at most what a car can have driven, plus receiverMetres.
	receiverMetres = 100
)

// Limits for following a car's way: the list of the stretches that it drove last.
const (
	// headingMetres is the distance over which a car's heading is measured. It is long in
	// comparison with a receiver's noise.
	headingMetres = 20
	// hysteresisDegrees is how far a heading must be outside the car's present octant (one of eight
	// directions) before the car changes to another octant.
	hysteresisDegrees = 10
	// A car has left the place where its drive began when it is leavesMetres away from it, or faster
	// than leavesKmh. Car parks and yards are smaller, and cars in them are slower.
	leavesMetres, leavesKmh = 250, 27
	// compassKmh is the minimum speed at which the heading that a receiver reports is used.
	compassKmh = 10
	// compassDegrees is how far that heading may differ from the direction in which the car moved.
	compassDegrees = 60
	// stationaryKmh is the speed below which a car is taken to be stationary. At such a speed, a
	// receiver's noise changes neither the car's direction nor its stretch.
	stationaryKmh = 1
	// partMetres is the length of the parts into which the line between two positions of a car
	// is cut, to find the stretches on the line.
	partMetres = 25
	// measuredMetres is the least distance between two positions that shows how far the car
	// drove. At shorter distances, the car's speeds show it better.
	measuredMetres = 40
	// mostGap is the longest time between two positions of one way, the default of --max-age. After
	// a longer time, a new way begins. There is no limit to the distance in that time, because such
	// a limit would keep the passages of slow cars and leave out those of fast ones.
	mostGap = 5 * time.Minute
	// mostParts is the greatest number of parts into which a line is cut, and lineKmh the least speed
	// at which a car is taken to have driven on one.
	mostParts, lineKmh = 256, 20
	// behindMetres is how many metres of the way behind a car are stored.
	behindMetres = 300
)

// Dropped is a reason why a position is not accepted, so that it is ignored.
type Dropped uint8

// The reasons why a position is not accepted.
const (
	Incomplete Dropped = iota // latitude without longitude, or the reverse
	NullIsland                // 0/0, which a receiver without a fix may report
	Inaccurate                // an accuracy worse than 50 m
	Jump                      // farther from the last fix than 300 km/h allow
	Frozen                    // exactly that of the last fix, although the car drives at another speed
	NumDropped
)

// String names the reason as the metrics spell it.
func (d Dropped) String() string {
	return [...]string{"incomplete", "null_island", "inaccurate", "jump", "frozen"}[d]
}

// fix is an accepted position of a car, with its time, the car's speed and its heading.
type fix struct {
	latitude, longitude float64
	time                vehicle.UnixMilli
	kmh                 float32 // negative: unknown
	heading             float32 // degrees; negative: unknown
}

// fixOf returns the position of a sample as a fix. If the sample has no position, has is false, and
// the other results have no meaning. If the position is accepted, why is NumDropped. Otherwise it
// is the reason why it is not, and f must not be used.
func fixOf(s *vehicle.State, x *vehicle.Sample) (f fix, has bool, why Dropped) {
	latitude, north := x.Value(vehicle.CurrentLatitude)
	longitude, east := x.Value(vehicle.CurrentLongitude)
	if !north && !east {
		return f, false, 0
	}
	if !north || !east {
		// The other half may have come in a sample of its own.
		this, other, value := vehicle.CurrentLongitude, vehicle.CurrentLatitude, &latitude
		if north {
			this, other, value = vehicle.CurrentLatitude, vehicle.CurrentLongitude, &longitude
		}
		half := s.Latest[other]
		if half.Time <= s.Way.Time || x.Time.Sub(half.Time) > halvesWithin {
			alone := s.Latest[this].Time > s.Way.Time // no other half came since
			return f, alone, Incomplete
		}
		*value = half.Value
	}
	if latitude == 0 && longitude == 0 {
		return f, true, NullIsland
	}
	if accuracy, ok := x.Value(vehicle.CurrentAccuracy); ok && accuracy > worstAccuracyMetres {
		return f, true, Inaccurate
	}
	f = fix{latitude: float64(latitude), longitude: float64(longitude), time: x.Time, kmh: speedAt(s, x), heading: -1}
	if w := &s.Way; f.latitude == float64(w.Latitude) && f.longitude == float64(w.Longitude) &&
		f.kmh >= compassKmh && f.kmh != w.SpeedKmh {
		return f, true, Frozen
	}
	if heading, ok := x.Value(vehicle.CurrentHeading); ok && f.kmh >= compassKmh {
		f.heading = heading
	}
	// A fix is compared with the last fix only if the last fix is at most mostGap old. If it is
	// older, a new way begins in any case. The limit also repairs an error: a wrong last fix
	// excludes all fixes at the car's true position, but only for the time mostGap.
	if w := &s.Way; w.Time != 0 && f.time.Sub(w.Time) <= mostGap {
		metres := math.Hypot(offset(float64(w.Latitude), float64(w.Longitude), f.latitude, f.longitude))
		if metres > receiverMetres+fastestMetresPerSecond*f.time.Sub(w.Time).Seconds() {
			return f, true, Jump
		}
	}
	return f, true, NumDropped
}

// speedHolds is the maximum age of a speed that is used with a position.
const speedHolds = 10 * time.Second

// speedAt returns the car's speed at the time of a sample, in km/h. Without one in the sample, it
// is the last one in the state s, or negative if that is older than speedHolds.
func speedAt(s *vehicle.State, x *vehicle.Sample) float32 {
	if v, ok := x.Speed(); ok {
		return v
	}
	if last, ok := s.Speed(); ok && x.Time.Sub(last.Time) <= speedHolds {
		return last.Value
	}
	return -1
}

// part is what a car drove on one stretch between two accepted positions.
type part struct {
	stretch         vehicle.Stretch
	metres, seconds float32
	// before is what the car had already driven on this stretch, on the same way. If the car has
	// just entered the stretch, the metres and seconds of before are zero, and from is what the car
	// drove on the stretch from which it came.
	before, from vehicle.WayStep
}

// parts are what a car drove between two accepted positions, in order: one part for each stretch.
type parts []part

// follow extends the way w up to the fix f, and appends what the car drove since the last fix to
// driven. It appends nothing if a new way begins at f, because there was no fix in the time mostGap
// before, or if the direction of travel is not known yet.
func follow(w *vehicle.Way, f fix, driven parts) parts {
	observeStay(w, &f)
	step := f.time.Sub(w.Time)
	east, north := offset(float64(w.Latitude), float64(w.Longitude), f.latitude, f.longitude)
	line := math.Hypot(east, north)
	if w.Time == 0 || step > mostGap {
		w.AnchorLatitude, w.AnchorLongitude = float32(f.latitude), float32(f.longitude)
		w.Octant, w.Heading, w.Count, w.Steps = 0, false, 0, [vehicle.WaySteps]vehicle.WayStep{}
		w.Time = 0
	}
	turn(w, f)
	if w.Time != 0 && w.Heading {
		metres := line
		if line < measuredMetres && w.SpeedKmh >= 0 && f.kmh >= 0 && !w.Distrusted {
			metres = float64(w.SpeedKmh+f.kmh) / 2 / 3.6 * step.Seconds()
		}
		metres = min(metres, fastestMetresPerSecond*step.Seconds())
		stands := isStationary(w.SpeedKmh) && isStationary(f.kmh)
		if w.Distrusted {
			stands = isStationary(float32(3.6*line/step.Seconds())) || f.time.Sub(w.StaySince) > time.Minute
		}
		if w.Count > 0 && line < measuredMetres && stands {
			driven = append(driven, part{stretch: w.Steps[0].Stretch, metres: float32(metres),
				seconds: float32(step.Seconds())})
		} else {
			driven = driven.cut(w, f, line, metres, step.Seconds())
		}
		for i := range driven {
			extend(w, &driven[i])
		}
		trim(w)
	}
	w.Latitude, w.Longitude, w.Time, w.SpeedKmh = float32(f.latitude), float32(f.longitude), f.time, f.kmh
	return driven
}

// How the positions and the speeds of a car are compared.
const (
	// standsAfter is how long a car must be in its circle before one position outside is not enough
	// to show that it has left.
	standsAfter = 2 * time.Minute
	// comparedMetres is how far a car must have moved, by its positions or by its speeds, for a
	// comparison.
	comparedMetres = 300
	// A car cannot drive less than the line between its positions, so a line longer by lineFactor
	// refutes the speeds. It may drive more, around corners and blocks; so only a line shorter than
	// speedFactor times the distance by speed refutes them.
	lineFactor, speedFactor = 1.25, 0.4
	// doubtsRefute is the number of contradictions after which the speeds are distrusted, until as
	// many comparisons agree.
	doubtsRefute = 2
)

// observeStay folds a fix into the circle in which the car stays, and compares its positions with its
// speeds.
func observeStay(w *vehicle.Way, f *fix) {
	east, north := offset(float64(w.StayLatitude), float64(w.StayLongitude), f.latitude, f.longitude)
	line, step := float32(math.Hypot(east, north)), f.time.Sub(w.Time)
	follows, left := w.Time != 0 && step <= mostGap, w.StaySince == 0 || line > vehicle.StayMetres
	if stood := w.Time.Sub(w.StaySince) > standsAfter; left && stood && !w.Outside {
		w.Outside, left = true, false // one position may be wrong
	} else {
		w.Outside = false
	}
	known := follows && w.SpeedKmh >= 0 && f.kmh >= 0
	if known {
		w.SpeedMetres += (w.SpeedKmh + f.kmh) / 2 / 3.6 * float32(step.Seconds())
	}
	if left && follows {
		w.LineMetres += line
		w.LegKmh = 3.6 * line / float32(f.time.Sub(w.StaySince).Seconds())
	}
	if known {
		compareSpeeds(w, step <= trustedGap*time.Second || f.kmh == w.SpeedKmh) // or it never changes
	} else {
		w.LineMetres, w.SpeedMetres = 0, 0
	}
	if !follows {
		w.LegKmh = -1
	}
	if left {
		w.StayLatitude, w.StayLongitude, w.StaySince = float32(f.latitude), float32(f.longitude), f.time
	}
}

// compareSpeeds compares how far the car moved by its positions and by its speeds. On a winding way,
// positions are close to each other unless they are dense, so they do not refute too high a speed.
func compareSpeeds(w *vehicle.Way, dense bool) {
	line, driven := w.LineMetres, w.SpeedMetres
	if max(line, driven-vehicle.StayMetres) < comparedMetres {
		return
	}
	switch {
	case line > lineFactor*driven || dense && line+vehicle.StayMetres < speedFactor*driven:
		w.Doubts = min(w.Doubts+1, doubtsRefute)
	case w.Doubts > 0:
		w.Doubts--
	}
	if w.Doubts == doubtsRefute || w.Doubts == 0 {
		w.Distrusted = w.Doubts != 0
	}
	w.LineMetres, w.SpeedMetres = 0, 0
}

func isStationary(kmh float32) bool { return kmh >= 0 && kmh < stationaryKmh }

// turn sets the direction of travel in a car's way: the heading that the receiver reports,
// otherwise the direction from the anchor, the position at which the direction was last measured,
// to the present position. The direction stays as it is at a distance below headingMetres, for a
// stationary car, and for small changes (hysteresisDegrees).
func turn(w *vehicle.Way, f fix) {
	if w.Heading && isStationary(f.kmh) {
		return
	}
	heading := float64(f.heading)
	east, north := offset(float64(w.AnchorLatitude), float64(w.AnchorLongitude), f.latitude, f.longitude)
	far := math.Hypot(east, north) >= headingMetres
	if far {
		w.AnchorLatitude, w.AnchorLongitude = float32(f.latitude), float32(f.longitude)
		shown := math.Mod(math.Atan2(east, north)*180/math.Pi+360, 360)
		if heading >= 0 {
			w.CompassWrong = math.Abs(math.Remainder(heading-shown, 360)) > compassDegrees
		}
		if heading < 0 || w.CompassWrong {
			heading = shown
		}
	} else if heading < 0 || w.CompassWrong {
		return
	}
	off := math.Abs(math.Remainder(heading-octantDegrees*float64(w.Octant), 360))
	if !w.Heading || off > octantDegrees/2+hysteresisDegrees {
		w.Octant, w.Heading = octantOf(heading), true
	}
}

// cut appends the stretches on the straight line from the last fix to f, whose length is line metres,
// and divides the metres and seconds that the car drove among them. The speed is taken to change
// linearly along the line, so a car that stopped at one end spent most of the time there.
func (d parts) cut(w *vehicle.Way, f fix, line, metres, seconds float64) parts {
	n := min(max(1, int(math.Ceil(line/partMetres))), mostParts)
	fromLatitude, fromLongitude := float64(w.Latitude), float64(w.Longitude)
	latitude, longitude := f.latitude-fromLatitude, math.Remainder(f.longitude-fromLongitude, 360)
	from, to, sum := float64(w.SpeedKmh), float64(f.kmh), float32(0)
	if min(from, to) < 0 {
		from = to
	}
	for i := range n {
		along := (float64(i) + 0.5) / float64(n)
		s := stretchAt(fromLatitude+along*latitude, fromLongitude+along*longitude, w.Octant)
		if len(d) == 0 || d[len(d)-1].stretch != s {
			d = append(d, part{stretch: s})
		}
		p := &d[len(d)-1]
		p.metres += float32(metres / float64(n))
		slow := float32(1 / max(from+(to-from)*along, lineKmh))
		p.seconds += slow
		sum += slow
	}
	for i := range d {
		d[i].seconds *= float32(seconds) / sum
	}
	return d
}

// extend adds what a car drove on one stretch to its way. If the way already has a step on that
// stretch, this step grows and becomes the newest one. So a car that drives back and forth on a
// stretch makes only one passage of it.
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
	w.Steps[0] = vehicle.WayStep{Stretch: p.stretch, Metres: p.before.Metres + p.metres,
		Seconds: p.before.Seconds + p.seconds}
}

// trim shortens a car's way to the last behindMetres, and the step that is partly within them. The
// newest step is never shortened.
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
