package traffic

import "time"

type kind struct {
	driver
	limitKmh float64
	// fewestPerKm is the number of cars per kilometre when the road is emptiest, and mostPerKm the
	// number when the busiest road of the kind is fullest.
	fewestPerKm, mostPerKm float64
	lights                 lights
	// window is the length of the time, ending now, over which the state of the road is
	// measured. A window with now in its middle would be better, but the service is compared
	// with the truth while the cars drive. The window is about two minutes long. In a shorter
	// window the state would depend on single cars, and in a longer one it would be out of
	// date. For a road with traffic lights it is the nearest whole number of their cycles, so
	// that the state does not change with each red light.
	window time.Duration
}

// lights are the traffic lights of a road; there are none if everyMeter is 0.
type lights struct {
	everyMeter float64
	cycle, red time.Duration // red includes yellow
}

// yellow is the time before red in which cars should stop if they can.
const yellow = 3 * time.Second

// kinds are the kinds of road in the simulated town. The motorway's driver is that of the paper of
// 2000 (see driver): the flow is greatest at about 26 cars per kilometre, and traffic breaks down
// at higher densities. Drivers in town are those of Treiber and Kesting, "Traffic Flow Dynamics"
// (2013), table 11.2, slightly less hurried.
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
