package road

import (
	"math"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const (
	// A position of worse accuracy cannot identify a stretch.
	worstAccuracyMetres    = 50
	fastestMetresPerSecond = 300 / 3.6
	halvesWithin           = time.Second // between a latitude and a longitude that come alone
	receiverMetres         = 100         // allows for the errors of receivers
)

const (
	headingMetres     = 20 // measure a direction: long beside a receiver's noise
	hysteresisDegrees = 10 // outside the octant change it
	// So far from where its drive began, or so fast, a car has left that place: car parks and yards
	// are smaller.
	leavesMetres, leavesKmh = 250, 27
	compassKmh              = 10 // the least speed for the receiver's heading
	compassDegrees          = 60 // a heading farther from the direction of motion is wrong
	// Below stationaryKmh, noise changes neither direction nor stretch.
	stationaryKmh = 1
	partMetres    = 25
	// Between closer positions, the speeds show better how far the car drove.
	measuredMetres = 40
	// A longer gap begins a new way. A limit of distance would leave out the passages of fast cars.
	mostGap = 5 * time.Minute
	// The time between two positions is divided among the parts of the line between them as if the
	// car was nowhere slower than lineKmh.
	mostParts, lineKmh = 256, 20
	behindMetres       = 300
)

type Dropped uint8

const (
	Incomplete Dropped = iota // latitude without longitude, or the reverse
	NullIsland                // 0/0, which a receiver without a fix may report
	Inaccurate                // worse than 50 m
	Jump                      // farther from the last fix than 300 km/h allow
	Frozen                    // exactly that of the last fix, although the car drives at another speed
	NumDropped
)

func (d Dropped) String() string {
	return [...]string{"incomplete", "null_island", "inaccurate", "jump", "frozen"}[d]
}

type fix struct {
	latitude, longitude float64
	time                signal.UnixMilli
	kmh                 float32 // negative: unknown
	heading             float32 // negative: unknown
	line                float64 // metres from the fix before
}

// fixOf returns the position of x. If it is accepted, why is NumDropped, which is no reason.
func fixOf(s *vehicle.State, x *vehicle.Sample) (f fix, has bool, why Dropped) {
	latitude, north := x.Value(signal.CurrentLatitude)
	longitude, east := x.Value(signal.CurrentLongitude)
	if !north && !east {
		return f, false, 0
	}
	if !north || !east {
		// The other half may have come in a sample of its own.
		this, other, value := signal.CurrentLongitude, signal.CurrentLatitude, &latitude
		if north {
			this, other, value = signal.CurrentLatitude, signal.CurrentLongitude, &longitude
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
	if accuracy, ok := x.Value(signal.CurrentAccuracy); ok && accuracy > worstAccuracyMetres {
		return f, true, Inaccurate
	}
	f = fix{latitude: float64(latitude), longitude: float64(longitude), time: x.Time, kmh: speedAt(s, x), heading: -1}
	w := &s.Way
	f.line = math.Hypot(offset(float64(w.Latitude), float64(w.Longitude), f.latitude, f.longitude))
	if f.latitude == float64(w.Latitude) && f.longitude == float64(w.Longitude) &&
		f.kmh >= compassKmh && f.kmh != w.SpeedKmh {
		return f, true, Frozen
	}
	if heading, ok := x.Value(signal.CurrentHeading); ok && f.kmh >= compassKmh {
		f.heading = heading
	}
	// After mostGap, a new way begins, which also ends the effect of a wrong last fix.
	gap := f.time.Sub(w.Time)
	if w.Time != 0 && gap <= mostGap && f.line > receiverMetres+fastestMetresPerSecond*gap.Seconds() {
		return f, true, Jump
	}
	return f, true, NumDropped
}

const speedHolds = 10 * time.Second

// speedAt returns -1 if no speed is newer than speedHolds.
func speedAt(s *vehicle.State, x *vehicle.Sample) float32 {
	if v, ok := x.Speed(); ok {
		return v
	}
	if last, ok := s.Latest.Speed(); ok && x.Time.Sub(last.Time) <= speedHolds {
		return last.Value
	}
	return -1
}

type part struct {
	stretch         driving.Stretch
	metres, seconds float32
	// before is what the car had driven there before on this way; from, of the stretch before, is
	// set if it has just entered.
	before, from driving.WayStep
}

// follow appends what the car drove since the last fix, or nothing if a new way begins or the
// direction is unknown.
func follow(w *driving.Way, f fix, driven []part) []part {
	observeStay(w, &f)
	step := f.time.Sub(w.Time)
	if w.Time == 0 || step > mostGap {
		w.AnchorLatitude, w.AnchorLongitude = float32(f.latitude), float32(f.longitude)
		w.Octant, w.Heading, w.Count, w.Steps = 0, false, 0, [driving.WaySteps]driving.WayStep{}
		w.Time = 0
	}
	turn(w, f)
	if w.Time != 0 && w.Heading {
		metres := f.line
		if f.line < measuredMetres && w.SpeedKmh >= 0 && f.kmh >= 0 && !w.Distrusted {
			metres = float64(w.SpeedKmh+f.kmh) / 2 / 3.6 * step.Seconds()
		}
		metres = min(metres, fastestMetresPerSecond*step.Seconds())
		stands := isStationary(w.SpeedKmh) && isStationary(f.kmh)
		if w.Distrusted {
			stands = isStationary(float32(3.6*f.line/step.Seconds())) || f.time.Sub(w.StaySince) > time.Minute
		}
		if w.Count > 0 && f.line < measuredMetres && stands {
			driven = append(driven, part{stretch: w.Steps[0].Stretch, metres: float32(metres),
				seconds: float32(step.Seconds())})
		} else {
			driven = cut(driven, w, f, metres, step.Seconds())
		}
		for i := range driven {
			extend(w, &driven[i])
		}
		trim(w)
	}
	w.Latitude, w.Longitude, w.Time, w.SpeedKmh = float32(f.latitude), float32(f.longitude), f.time, f.kmh
	return driven
}

const (
	standsAfter    = 2 * time.Minute // after this in a circle, one position outside does not show that the car left
	comparedMetres = 300             // by positions or speeds, before these are compared
	// A car cannot drive less than the line, but more around corners and blocks: a line refutes
	// speeds if over lineFactor times as long as they show, or below speedFactor times.
	lineFactor, speedFactor = 1.25, 0.4
	doubtsRefute            = 2 // contradictions refute speeds, as many agreements restore trust
)

func observeStay(w *driving.Way, f *fix) {
	east, north := offset(float64(w.StayLatitude), float64(w.StayLongitude), f.latitude, f.longitude)
	line, step := float32(math.Hypot(east, north)), f.time.Sub(w.Time)
	follows, left := w.Time != 0 && step <= mostGap, w.StaySince == 0 || line > driving.StayMetres
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
		compareSpeeds(w, step <= trustedGap*time.Second || f.kmh == w.SpeedKmh) // or the speed never changes
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

// On a winding way, only dense positions refute too high a speed.
func compareSpeeds(w *driving.Way, dense bool) {
	line, driven := w.LineMetres, w.SpeedMetres
	if max(line, driven-driving.StayMetres) < comparedMetres {
		return
	}
	switch {
	case line > lineFactor*driven || dense && line+driving.StayMetres < speedFactor*driven:
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

// turn uses the receiver's heading, otherwise the direction from the anchor.
func turn(w *driving.Way, f fix) {
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

// cut changes the speed linearly along the line, so a car that stopped at one end spent most of the
// time there.
func cut(d []part, w *driving.Way, f fix, metres, seconds float64) []part {
	n := min(max(1, int(math.Ceil(f.line/partMetres))), mostParts)
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

// extend lets a step of the same stretch grow: driving back and forth makes one passage.
func extend(w *driving.Way, p *part) {
	i := uint8(0)
	for i < w.Count && w.Steps[i].Stretch != p.stretch {
		i++
	}
	if i < w.Count {
		p.before = w.Steps[i]
	} else {
		if w.Count > 0 {
			p.from = w.Steps[0]
		}
		w.Count = min(w.Count+1, driving.WaySteps)
		i = w.Count - 1
	}
	copy(w.Steps[1:i+1], w.Steps[:i])
	w.Steps[0] = driving.WayStep{Stretch: p.stretch, Metres: p.before.Metres + p.metres,
		Seconds: p.before.Seconds + p.seconds}
}

func trim(w *driving.Way) {
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
