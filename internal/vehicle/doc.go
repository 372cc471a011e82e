// Package vehicle holds what the service knows about cars: who they are, what
// they report, and what may be concluded from it.
//
// A [Sample] is what one vehicle read at one time. [Observe] folds samples into
// a [State], one value a vehicle, and a State yields two verdicts: how the car
// drives ([State.Driving]) and whether its throttle system is healthy
// ([State.Throttle]).
//
// Everything here is pure: no clock, no I/O, no allocation on the way of a
// sample, standard library only. Time is always event time, the time at which
// the car read its sensors. The package must never learn of bytes, topics,
// headers or storage.
package vehicle
