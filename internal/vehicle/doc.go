// Package vehicle holds the domain of the service: vehicles, what they report, and the rules that
// conclude how a car drives and whether its throttle is healthy.
//
// Time is event time, when the car read its sensors. The package has no clock and no I/O, and must
// never know about bytes, topics, headers or storage.
package vehicle
