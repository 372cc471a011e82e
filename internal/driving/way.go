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
	StayLatitude, StayLongitude     float32 // centre of the circle of StayMetres where the car is since StaySince
	StaySince                       signal.UnixMilli
	LegKmh                          float32 // speed between the last two circles; negative: unknown
	Outside                         bool    // The newest fix is the first outside the circle.
	LineMetres, SpeedMetres         float32 // by positions and by speeds since these were last compared
	Doubts                          uint8   // of speeds: contradictions less agreements
	Distrusted                      bool    // The positions refute the speeds.
	FromLatitude, FromLongitude     float32 // where the drive began
	OnRoad                          bool    // Until it is set, the car may be in a car park.
	CompassWrong                    bool    // The receiver's heading contradicts the positions.
	Octant                          uint8   // from 0 (north) to 7 (north-west), if Heading is set
	Heading                         bool
	Count                           uint8             // of Steps
	Steps                           [WaySteps]WayStep // newest first
}

const WaySteps = 12

// StayMetres is the radius of the circle. Positions less accurate than this are not used.
const StayMetres = 50

type WayStep struct {
	Stretch         Stretch
	Metres, Seconds float32 // summed, also when the car comes back to the stretch
}

// RoadAround is what other cars show. Free is in light traffic, red lights included. Behind is the
// way where the free flow is known; ahead is the likeliest way, where at least three cars drive.
type RoadAround struct {
	Time                                signal.UnixMilli // of the fix
	FreeSecondsBehind, FreeSecondsAhead float32
	DelayBehind, DelayAhead             float32          // present travel times divided by free ones; 0: too few cars
	ShownBehind                         float32          // the share of FreeSecondsBehind with at least three cars
	FreeKmh                             float32          // behind; 0 if less than half of the road is known
	Apart                               float32          // 0 to 1: how clearly the car drives in other lanes than those
	PassedFreely                        signal.UnixMilli // when a car was last seen to pass here without delay
	Cars                                uint8            // about how many cars show the delays
	Young                               bool             // The free flow of more than half of the road is a guess.
}

// shownKmh returns LegKmh, but at most the speed that the time in the present circle allows. While
// LegKmh is unknown, ok is false until that limit is below stopKmh.
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
