package traffic

import "time"

type kind struct {
	driver
	limitKmh float64
	// Cars per kilometre: fewestPerKm is the least of each road, mostPerKm the most of the busiest.
	fewestPerKm, mostPerKm float64
	lights                 lights
	// window ends now, because the service is compared with the truth while the cars drive. If it
	// were shorter, the state would depend on single cars; longer, it would be out of date. With
	// lights, it is a whole number of cycles, so that the state does not change with each red
	// light.
	window time.Duration
}

// There are no lights if everyMeter is 0.
type lights struct {
	everyMeter float64
	cycle, red time.Duration // red includes yellow
}

const yellow = 3 * time.Second

// Drivers on the motorway have the parameters of the paper named at driver: the flow is greatest at
// about 26 cars per kilometre, and breaks down above. Those in town are from Treiber and Kesting,
// "Traffic Flow Dynamics" (2013), table 11.2, slightly less hurried.
var kinds = [...]kind{
	{
		desiredMps: 120 / 3.6, headwaySec: 1.6, accelMps2: 0.73, brakeMps2: 1.67, minGapMeter: 2,
		limitKmh: 120, fewestPerKm: 8, mostPerKm: 70,
		window: 2 * time.Minute,
	},
	{
		desiredMps: 50 / 3.6, headwaySec: 1.2, accelMps2: 1.2, brakeMps2: 1.7, minGapMeter: 2,
		limitKmh: 50, fewestPerKm: 8, mostPerKm: 105,
		lights: lights{everyMeter: 400, cycle: 70 * time.Second, red: 28 * time.Second},
		window: 140 * time.Second,
	},
	{
		desiredMps: 70 / 3.6, headwaySec: 1.2, accelMps2: 1.2, brakeMps2: 1.7, minGapMeter: 2,
		limitKmh: 70, fewestPerKm: 8, mostPerKm: 90,
		lights: lights{everyMeter: 700, cycle: 90 * time.Second, red: 32 * time.Second},
		window: 90 * time.Second,
	},
}
