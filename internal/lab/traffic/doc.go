// Package traffic moves a fleet of simulated cars through traffic, to try the service on cars whose
// true driving state is known.
//
// A [Fleet] has ring roads: motorways, and arterials and city streets with traffic lights. The cars
// follow the Intelligent Driver Model, and their number on a road rises and falls once in half an
// hour (the tide). Jams form where there are too many cars; none is scripted. The truth is how fast
// all cars move around a car, compared with light traffic on the same stretch, red lights included.
//
// The package must never depend on the rules that are tested with it. It has no clock and no I/O:
// the same configuration gives the same drive, reading by reading.
package traffic
