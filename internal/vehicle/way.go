package vehicle

// Stretch names a stretch of road in one direction of travel. What it stands for
// is known to the package road alone; zero is no stretch.
type Stretch uint64

// Way is where a car came from: the last 300 m or so of its way, as stretches.
// The package road keeps it. It is the only part of a State, besides the latest
// readings, from which a place can be told.
type Way struct {
	// Latitude and Longitude are those of the last fix that counted, in degrees;
	// Time is when it was taken, zero if there is none.
	Latitude, Longitude float32
	Time                UnixMilli
	// AnchorLatitude and AnchorLongitude are where the metres began from which the
	// next heading is taken.
	AnchorLatitude, AnchorLongitude float32
	// SpeedKmh is the car's speed at the fix; negative if it was not known.
	SpeedKmh float32
	// Octant is the direction of travel, 0 (north) to 7 (north-west), if Heading
	// is set.
	Octant  uint8
	Heading bool
	// Count is how many of Steps are in use.
	Count uint8
	// Steps are the stretches driven, the newest first.
	Steps [WaySteps]WayStep
}

// WaySteps is how many stretches a Way holds at most.
const WaySteps = 12

// WayStep is a part of a Way.
type WayStep struct {
	Stretch Stretch
	// Metres and Seconds are what the car has driven there since it came onto it. A
	// stretch that it left and came back to goes on from where it was.
	Metres, Seconds float32
}

// RoadAround is what is known of the road around a car, from the stretches behind
// and ahead of it and the cars that drive there, as of the last fix. The zero value
// is a road of which nothing is known.
type RoadAround struct {
	// Time is that of the fix.
	Time UnixMilli
	// FreeSecondsBehind and FreeSecondsAhead are how long the way behind and the
	// likeliest way ahead take when traffic is light, ordinary red lights included.
	FreeSecondsBehind, FreeSecondsAhead float32
	// DelayBehind and DelayAhead are how many times as long they take now, as the
	// cars there show; zero if too few cars do.
	DelayBehind, DelayAhead float32
	// ShownBehind is the share of the way behind, by its free travel time, on which
	// enough cars are to show DelayBehind.
	ShownBehind float32
	// FreeKmh is the speed at which the way behind is driven when traffic is light.
	FreeKmh float32
	// Cars is how many cars showed the delays; 0 if none did.
	Cars uint8
	// Young is set if the free flow is that of a road which was not seen free yet.
	Young bool
}

// roadHolds is how long what was known of the road at a fix counts. A car without
// newer fixes may be on another road.
const roadHolds = maxStep
