// Package road holds what stretches of road are known to do: how fast the cars there
// move now, how fast they move when traffic is light, and which stretch usually comes
// next. It learns all of it from the positions of the fleet, without a map.
//
// A [vehicle.Stretch] is a cell of S2 at level 17, about 70 m wide, and one of eight
// directions of travel, so that the two directions of a motorway, and a street that
// crosses it, are different stretches.
//
// A [Map] folds samples as [vehicle.Observe] does, and before that follows the car
// along its way, adds what it shows to the stretches, and gives the car's state what
// they tell of the road around it. What a Map holds is soft: profiles of stretches
// survive a crash as of the last time that they were stored, the present of a road is
// learned again within minutes.
//
// # Privacy
//
// No stretch holds a vehicle. A car counts on a stretch by one of 32 numbers that its
// id is hashed to, which it shares with a thirty-second of all cars. The package must
// never log a position, nor put one into an error.
package road
