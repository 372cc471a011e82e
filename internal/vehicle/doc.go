// Package vehicle holds the domain of the service: how vehicles are identified, what they
// report, and what may be concluded from it.
//
// A [Sample] holds the readings of one vehicle at one time. [State.Fold] folds a sample into
// the vehicle's [State]. A State yields two verdicts: how the car drives ([State.Driving])
// and whether its throttle system is healthy ([State.Throttle]).
//
// Nothing here has a clock or I/O, and only the standard library is used. Folding a sample
// allocates nothing. Time is always event time, the time at which the car read its sensors.
// The package must never know about bytes, topics, headers or storage.
package vehicle
