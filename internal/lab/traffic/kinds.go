package traffic

import "time"

type kind struct {
	driver
	limitKmh float64
	// fewestPerKm is the lowest number of cars per kilometre that each road of the kind has over
	// time, and mostPerKm the highest that any of them has.
	fewestPerKm, mostPerKm float64
	lights                 lights
	// window is the length of the period over which the state of the road is measured. The period
	// ends at the present time, because the service is compared with the truth while the cars
	// drive. (A period with the present time in its middle would be better, but would need the
	// future.) The window is about two minutes long. With a shorter window, the state would depend
	// on single cars; with a longer window, it would be out of date. On a road with traffic lights
	// the window is a whole number of their cycles, so that the state does not change with each red
	// light.
	window time.Duration
}

// lights are the traffic lights of a road; there are none if everyMeter is 0.
type lights struct {
	everyMeter float64
	cycle, red time.Duration // red includes yellow
}

// yellow is the time before red in which cars should stop if they can.
const yellow = 3 * time.Second

// kinds are the kinds of road in the simulated town. Drivers on the motorway have the parameters of
// the paper that the comment of driver names: the flow is greatest at about 26 cars per kilometre,
// and traffic breaks down at higher densities. Drivers in town have those of Treiber and Kesting,
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
