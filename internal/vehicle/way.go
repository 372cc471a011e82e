package vehicle

// Stretch names a stretch of road in one direction of travel. Only package road knows where
// it is. Zero is no stretch.
type Stretch uint64

// Way is the car's recent way: about the last 300 m, as stretches. Package road maintains
// it. Besides the latest readings, it is the only part of a State that reveals a place.
type Way struct {
	// Latitude and Longitude are the position of the last accepted fix, in degrees. Time is
	// when it was taken, zero if there is none.
	Latitude, Longitude float32
	Time                UnixMilli
	// AnchorLatitude and AnchorLongitude are the position from which the next heading is
	// measured.
	AnchorLatitude, AnchorLongitude float32
	// SpeedKmh is the car's speed at the fix; negative if it was unknown.
	SpeedKmh float32
	// Octant is the direction of travel, from 0 (north) to 7 (north-west). It is valid if
	// Heading is set.
	Octant  uint8
	Heading bool
	// Count is the number of Steps in use.
	Count uint8
	// Steps are the stretches driven, the newest first.
	Steps [WaySteps]WayStep
}

// WaySteps is the greatest number of stretches in a Way.
const WaySteps = 12

// WayStep is the part of a Way on one stretch.
type WayStep struct {
	Stretch Stretch
	// Metres and Seconds are the distance and the time driven on the stretch since the car
	// entered it. If the car leaves the stretch and comes back to it within the Way, they
	// continue from their last values.
	Metres, Seconds float32
}

// RoadAround is what was known of the road around a car at the time of its last fix. It comes from
// the stretches behind and ahead of the car and from the cars that drive there. The zero value
// means that nothing is known.
type RoadAround struct {
	// Time is the time of the fix.
	Time UnixMilli
	// FreeSecondsBehind and FreeSecondsAhead are travel times in light traffic, ordinary red
	// lights included: that of the way behind the car, and that of its likeliest way ahead.
	FreeSecondsBehind, FreeSecondsAhead float32
	// DelayBehind and DelayAhead are the present travel times of these two ways, as multiples of
	// their travel times in light traffic. They are measured from the cars there, and zero if too
	// few cars show them.
	DelayBehind, DelayAhead float32
	// ShownBehind is the share of the way behind, by free travel time, on which enough cars
	// drive to show DelayBehind.
	ShownBehind float32
	// FreeKmh is the speed on the way behind in light traffic.
	FreeKmh float32
	// Cars is the number of cars that showed the delays; 0 if none did.
	Cars uint8
	// Young is set if the road was not yet seen in light traffic, so that its free flow is
	// a guess.
	Young bool
}

// roadHolds is how long the knowledge of the road at a fix remains valid. Later, a car without
// newer fixes may be on another road.
const roadHolds = maxStep
