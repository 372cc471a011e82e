// Package traffic moves a fleet of simulated cars through traffic, to try the service on cars
// whose true driving state is known.
//
// A [Fleet] has ring roads of three kinds: motorways, arterials and city streets. Arterials and
// city streets have traffic lights. Each car follows the car in front according to the Intelligent
// Driver Model ([driver]). The number of cars on a road rises and falls once in half an hour;
// comments call this the tide. Jams form where there are too many cars, move upstream, and
// dissolve; no jam is scripted. A car that leaves a road goes to another one or parks. The roads
// lie around the middle of an invented town ([ring]).
//
// The truth about a car is the state of the road around it. This state depends on how fast all cars
// move there, compared with their speed on the same stretch in light traffic, red lights included
// ([road.state], [light]). A car reports its own speed, engine speed, throttle and pedal
// ([sensors]), and its position, with the errors of a satellite receiver ([receiver]). The package
// must never depend on the rules that are tested with it; otherwise they would be compared with
// themselves.
//
// The package has no clock and no I/O. The same configuration gives the same drive, reading by
// reading.
package traffic
