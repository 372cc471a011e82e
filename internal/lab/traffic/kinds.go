package traffic

import "time"

type kind struct {
	driver
	limitKmh               float64
	fewestPerKm, mostPerKm float64 // the least of each road, the most of the busiest
	lights                 lights
	// The window of the truth ends now, because the service is compared while cars drive. Shorter,
	// it would depend on single cars; longer, it would be old. With lights, it is a whole number of
	// cycles.
	window time.Duration
}

type lights struct {
	everyMeter float64
	cycle, red time.Duration // red includes yellow
}

const yellow = 3 * time.Second

// Drivers on the motorway are those of the paper at driver; those in town are from Treiber and
// Kesting, "Traffic Flow Dynamics" (2013), table 11.2, slightly less hurried.
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
