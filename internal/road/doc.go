// Package road holds what is known of stretches of road: how fast the cars there drive now, how
// fast they drive in light traffic, and which stretch usually comes next. It learns all of this
// from the positions of the fleet, without the data of a road map. DESIGN.md explains how.
//
// A [vehicle.Stretch] is a cell of the grid S2 at level 17, about 70 m wide, together with one of
// eight directions of travel.
//
// A [Map] folds samples as [vehicle.State.Fold] does. Before it folds a sample, it follows the car
// along its way and adds the car's evidence (the metres and seconds driven) to the stretches of
// this way. It also writes into the car's state what the stretches around the car show. A crash may
// lose the contents of a Map without harm: after the crash, the profiles of stretches are as they
// were last stored, and the present traffic is learned again within minutes.
//
// # Privacy
//
// No stretch stores a vehicle. A car is counted on a stretch by its voice, the hash of its id to
// one of 32 numbers. One car in 32 has the same voice. The package must never log a position, nor
// put one into an error.
package road
