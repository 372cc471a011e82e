// Package traffic moves a fleet of simulated cars through traffic, so that the
// service can be tried on cars of which the truth is known.
//
// A [Fleet] has ring roads of three kinds: motorways, arterials and city streets,
// the latter two with traffic lights. Each car follows the one before it by the
// Intelligent Driver Model ([driver]). How many cars a road carries rises and falls
// over half an hour; jams form where there are too many, move upstream, and dissolve,
// and nobody puts them there. A car that leaves a road goes on to another or parks.
// The roads lie around the middle of a town that does not exist ([ring]).
//
// The truth about a car is the state of the road around it: how fast all cars there
// move, as a share of what the same stretch allows when traffic is light, red lights
// included ([road.state], [light]). A car reports its own speed, engine, plate and
// pedal ([sensors]), and its position, with the errors of a satellite receiver
// ([receiver]). The package must never learn of the rules that judge, or the truth
// would be theirs.
//
// It has no clock and no I/O: the same configuration gives the same drive, reading by
// reading.
package traffic
