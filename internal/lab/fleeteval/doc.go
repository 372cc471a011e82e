// Package fleeteval runs the rules over a fleet file, as a service would have run
// them, and holds its answers against labels of the traffic around the cars.
//
// Readings and cars can be thinned, because a real fleet reports less than a
// simulated one. The choice depends on the vehicle's name alone, so that two runs
// see the same readings. The package never judges: the rules are a function that
// it is given.
package fleeteval
