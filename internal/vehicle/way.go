package vehicle

import "math"

// Stretch names a stretch of road in one direction of travel. Only package road knows where it is.
// Zero is no stretch.
type Stretch uint64

// Way is about the last 300 m that the car drove. Package road maintains it. Besides the latest
// readings, only Way reveals a place.
type Way struct {
	// The newest position that package road accepted (a fix), in degrees, and its time.
	Latitude, Longitude float32
	Time                UnixMilli
	// Where the direction of travel was last measured, and the next measurement starts.
	AnchorLatitude, AnchorLongitude float32
	// The speed at the fix; negative if unknown.
	SpeedKmh float32
	// The car has not left the circle of StayMetres since StaySince. LegKmh is its speed between
	// the last two such circles; negative if unknown.
	StayLatitude, StayLongitude float32
	StaySince                   UnixMilli
	LegKmh                      float32
	// The newest fix is the first outside the circle.
	Outside bool
	// How far the car moved by its positions and by its speeds since the two were last compared.
	// Doubts counts the comparisons that contradicted, less those that agreed. Distrusted: the
	// positions refute the speeds, so that these are not used.
	LineMetres, SpeedMetres float32
	Doubts                  uint8
	Distrusted              bool
	// Where the drive began. OnRoad is set when the car has left that place, so that it is not in a
	// car park any more.
	FromLatitude, FromLongitude float32
	OnRoad                      bool
	// The receiver's heading contradicts the positions.
	CompassWrong bool
	// Octant is the direction of travel, from 0 (north) to 7 (north-west), if Heading is set.
	Octant  uint8
	Heading bool
	// The number of Steps in use.
	Count uint8
	// The newest is first.
	Steps [WaySteps]WayStep
}

// StayMetres is the radius of the circle in which a car is taken to have stayed: the worst accuracy
// of a position that is used.
const StayMetres = 50

const WaySteps = 12

type WayStep struct {
	Stretch Stretch
	// They continue from their last values if the car comes back to a stretch that is still in the
	// Way.
	Metres, Seconds float32
}

// RoadAround is what was known of the road behind and ahead of a car at its last fix. The zero
// value means that nothing is known.
type RoadAround struct {
	// The time of the fix.
	Time UnixMilli
	// Travel times in light traffic, ordinary red lights included: of the stretches behind whose
	// free flow is known, and of those of the likeliest way ahead where at least three cars drive
	// now.
	FreeSecondsBehind, FreeSecondsAhead float32
	// The present travel times as multiples of those in light traffic, measured from the cars
	// there; zero if they are too few.
	DelayBehind, DelayAhead float32
	// The share of FreeSecondsBehind, from 0 to 1, on stretches with at least three cars.
	ShownBehind float32
	// The mean speed on the way behind in light traffic. It is 0 if the free flow of less than half
	// of the road is known, or of none of the road behind.
	FreeKmh float32
	// From 0 to 1: how far the car's own passages show that it drives in another stream than the
	// cars that show the delays, for example on a road beside theirs.
	Apart float32
	// When a car was last seen to pass this place without delay.
	PassedFreely UnixMilli
	// About how many cars the delays were measured from.
	Cars uint8
	// The free flow is a guess for more than half of the road, which was not yet seen in light
	// traffic.
	Young bool
}

// roadHolds limits the age of a RoadAround: later, the car may be on another road.
const roadHolds = maxStep

// shownKmh returns the speed that the positions show: that of the last leg, limited by the time
// that the car has been in its circle since. If there was no leg yet, ok is false until this limit
// is below walking pace.
func (w *Way) shownKmh() (kmh float32, ok bool) {
	limit := float32(math.Inf(1))
	if stayed := w.Time.seconds(w.StaySince); stayed > 0 {
		limit = 3.6 * StayMetres / stayed
	}
	if w.LegKmh < 0 {
		return 0, limit < stopKmh
	}
	if kmh = min(w.LegKmh, limit); limit < stopKmh {
		kmh = 0
	}
	return kmh, true
}
