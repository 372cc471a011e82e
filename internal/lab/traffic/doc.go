// Package traffic moves simulated cars, to try the service on cars whose true state is known.
//
// The cars follow the Intelligent Driver Model on ring roads, some with lights; their number on a
// road rises and falls once in half an hour (the tide). No jam is scripted. The truth is how fast
// all cars move around a car, compared with light traffic on the same stretch, red lights included.
//
// The package must never depend on the rules that are tested with it. The same configuration gives
// the same drive, reading by reading.
package traffic
