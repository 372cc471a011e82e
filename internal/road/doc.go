// Package road learns from the fleet's positions how fast cars drive on each stretch of road now
// and in light traffic, and which stretch comes next. DESIGN.md explains how.
//
// A crash may lose a [Map] without harm: stored profiles remain, and the present traffic is learned
// again within minutes.
//
// No stretch stores a vehicle, only its voice, one of 32. The package must never log a position,
// nor put one into an error.
package road
