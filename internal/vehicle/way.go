package vehicle

import "math"

// Stretch names a stretch of road in one direction of travel. Only package road knows where
// it is. Zero is no stretch.
type Stretch uint64

// Way is the list of the stretches that the car drove last, about 300 m. Package road maintains it.
// Besides the latest readings, it is the only part of a State that reveals a place.
type Way struct {
	// Latitude and Longitude are the newest position that package road accepted (a fix), in
	// degrees. Time is when that position was taken, zero if there is none.
	Latitude, Longitude float32
	Time                UnixMilli
	// AnchorLatitude and AnchorLongitude are the position where the direction of travel was last
	// measured. The next measurement starts from there.
	AnchorLatitude, AnchorLongitude float32
	// SpeedKmh is the car's speed at the fix; negative if it was unknown.
	SpeedKmh float32
	// StayLatitude and StayLongitude are the middle of the circle, StayMetres in radius, that the car
	// has not left since StaySince. LegKmh is its speed between the last two such circles, and
	// negative if that is unknown.
	StayLatitude, StayLongitude float32
	StaySince                   UnixMilli
	LegKmh                      float32
	// Outside is set if the newest fix is the first outside the circle.
	Outside bool
	// LineMetres and SpeedMetres are how far the car moved by its positions and by its speeds, since
	// the two were last compared. Doubts counts the comparisons in which they contradicted each
	// other, less those in which they agreed. Distrusted is set if the speeds are refuted by the
	// positions, so that they are not used.
	LineMetres, SpeedMetres float32
	Doubts                  uint8
	Distrusted              bool
	// FromLatitude and FromLongitude are where the drive began. OnRoad is set when the car has left
	// that place, so that it is not in a car park any more.
	FromLatitude, FromLongitude float32
	OnRoad                      bool
	// CompassWrong is set if the heading that the receiver sends contradicts the positions.
	CompassWrong bool
	// Octant is the direction of travel, from 0 (north) to 7 (north-west). It is valid if
	// Heading is set.
	Octant  uint8
	Heading bool
	// Count is the number of Steps in use.
	Count uint8
	// Steps are the stretches driven, the newest first.
	Steps [WaySteps]WayStep
}

// StayMetres is the radius of the circle in which a car is taken to have stayed. It is the worst
// accuracy of a position that is used.
const StayMetres = 50

// WaySteps is the greatest number of stretches in a Way.
const WaySteps = 12

// WayStep is the part of a Way on one stretch.
type WayStep struct {
	Stretch Stretch
	// Metres and Seconds are the distance and the time driven on the stretch since the car
	// entered it. If the car comes back to a stretch that is still one of the Way's steps, they
	// continue from their last values.
	Metres, Seconds float32
}

// RoadAround is what was known of the road behind and ahead of a car at the time of its last fix,
// the newest accepted position. The zero value means that nothing is known.
type RoadAround struct {
	// Time is the time of the fix.
	Time UnixMilli
	// FreeSecondsBehind and FreeSecondsAhead are travel times in light traffic, ordinary red lights
	// included. FreeSecondsBehind is for those stretches behind the car whose free flow is known.
	// FreeSecondsAhead is for those stretches of the car's likeliest way ahead where at least three
	// cars drive now.
	FreeSecondsBehind, FreeSecondsAhead float32
	// DelayBehind and DelayAhead are the present travel times of the way behind and of the way
	// ahead, as multiples of the travel times in light traffic. They are measured from the cars
	// there, and are zero if there are too few cars.
	DelayBehind, DelayAhead float32
	// ShownBehind is the share of FreeSecondsBehind, from 0 to 1, on stretches where at least three
	// cars drive, so that DelayBehind is measured there.
	ShownBehind float32
	// FreeKmh is the mean speed on the way behind in light traffic. It is 0 if the free flow of
	// less than half of the road behind and ahead is known, or of none of the road behind.
	FreeKmh float32
	// Apart says, from 0 to 1, how far the car's own passages show that it drives in another stream
	// than the cars that show the delays, for example on a road beside theirs.
	Apart float32
	// PassedFreely is when a car was last seen to pass, without delay, the place where this car is.
	PassedFreely UnixMilli
	// Cars is an estimate of the number of cars from which the delays were measured; 0 if there
	// were none.
	Cars uint8
	// Young is set if the free flow is a guess for more than half of the road, because this road
	// was not yet seen in light traffic.
	Young bool
}

// roadHolds is how long a RoadAround is used after its fix. Later, the car may be on another road.
const roadHolds = maxStep

// shownKmh returns the car's speed at its newest fix as its positions show it: the speed of the last
// leg, limited by the time that the car has been in its circle since. If there was no leg yet, ok is
// false until this limit is below walking pace.
func (w *Way) shownKmh() (kmh float32, ok bool) {
	limit := float32(math.Inf(1))
	if stayed := w.Time.seconds(w.StaySince); stayed > 0 {
		limit = 3.6 * StayMetres / stayed
	}
	if w.LegKmh < 0 {
		return 0, limit < crawl
	}
	if kmh = min(w.LegKmh, limit); limit < crawl {
		kmh = 0
	}
	return kmh, true
}
