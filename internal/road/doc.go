// Package road learns from the positions of the fleet, without a road map, how fast cars drive on
// each stretch of road now and in light traffic, and which stretch usually comes next. DESIGN.md
// explains how.
//
// A [Map] folds samples as [vehicle.State.Fold] does, and writes into the car's state what the
// stretches around it show. A crash may lose a Map without harm: profiles are as they were last
// stored, and the present traffic is learned again within minutes.
//
// No stretch stores a vehicle: a car is counted by its voice, one of 32 numbers. The package must
// never log a position, nor put one into an error.
package road
