// Package vehicle holds the domain of the service: vehicles, what they report, and the rules that
// conclude from it how a car drives ([State.Driving]) and whether its throttle is healthy
// ([State.Throttle]).
//
// Time is event time, the time at which the car read its sensors. The package has no clock and no
// I/O, folds a sample without an allocation, and must never know about bytes, topics, headers or
// storage.
package vehicle
