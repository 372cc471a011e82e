package driving

import (
	"math"

	"example.org/carstate/internal/signal"
)

// Stretch names a stretch of road in one direction. Only package road knows where it is. Zero is
// none.
type Stretch uint64

// Way is about the last 300 m, as package road maintains it. Besides the latest readings, only Way
// reveals a place.
type Way struct {
	Latitude, Longitude             float32 // the newest accepted position (the fix), in degrees
	Time                            signal.UnixMilli
	AnchorLatitude, AnchorLongitude float32 // where the direction of travel was last measured
	SpeedKmh                        float32 // at the fix; negative: unknown
	// The car has stayed in the circle of StayMetres since StaySince. LegKmh is its speed between
	// the last two; negative: unknown.
	StayLatitude, StayLongitude float32
	StaySince                   signal.UnixMilli
	LegKmh                      float32
	// The newest fix is the first outside the circle.
	Outside bool
	// Distances by positions and by speeds since they were last compared. Doubts counts
	// contradictions less agreements. If Distrusted, the positions refute the speeds.
	LineMetres, SpeedMetres float32
	Doubts                  uint8
	Distrusted              bool
	// Where the drive began. Until OnRoad, the car may be in a car park.
	FromLatitude, FromLongitude float32
	OnRoad                      bool
	// The receiver's heading contradicts the positions.
	CompassWrong bool
	Octant       uint8 // from 0 (north) to 7 (north-west), if Heading is set
	Heading      bool
	Count        uint8 // of Steps
	// The newest is first.
	Steps [WaySteps]WayStep
}

// StayMetres is the worst accuracy of a position that is used.
const StayMetres = 50

const WaySteps = 12

type WayStep struct {
	Stretch Stretch
	// They go on if the car comes back to the stretch.
	Metres, Seconds float32
}

type RoadAround struct {
	Time signal.UnixMilli // of the fix
	// In light traffic, ordinary red lights included: behind where the free flow is known, and on
	// the likeliest way ahead where at least three cars drive.
	FreeSecondsBehind, FreeSecondsAhead float32
	// Present travel times as multiples of those in light traffic; zero if there are too few cars.
	DelayBehind, DelayAhead float32
	// the share of FreeSecondsBehind, from 0 to 1, with at least three cars
	ShownBehind float32
	FreeKmh     float32 // on the way behind; 0 if less than half of the road is known, or nothing behind
	// From 0 to 1: the car drives in another stream than those cars, for example on a road beside
	// theirs.
	Apart        float32
	PassedFreely signal.UnixMilli // when a car was last seen to pass here without delay
	Cars         uint8            // about how many cars show the delays
	// The free flow of more than half of the road is a guess.
	Young bool
}

// shownKmh returns the speed of the last leg, limited by the time in the circle since. Without a
// leg, ok is false until this limit is below walking pace.
func (w *Way) shownKmh() (kmh float32, ok bool) {
	limit := float32(math.Inf(1))
	if stayed := w.Time.Seconds(w.StaySince); stayed > 0 {
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
