// Package traffic moves a fleet of simulated cars through traffic, so that the
// service can be tried on cars of which the truth is known.
//
// A [Fleet] has ring roads of three kinds: motorways, arterials and city streets,
// the latter two with traffic lights. Each car follows the one before it by the
// Intelligent Driver Model ([driver]). How many cars a road carries rises and falls
// over half an hour; jams form where there are too many, move upstream, and dissolve,
// and nobody puts them there. A car that leaves a road goes on to another or parks.
//
// The truth about a car is the state of the road around it, from the motion of all
// cars there ([road.state]); what a car reports, from [sensors], is its own speed,
// engine, plate and pedal. The package must never learn of the rules that judge,
// or the truth would be theirs.
//
// It has no clock and no I/O: the same configuration gives the same drive, reading by
// reading.
package traffic
