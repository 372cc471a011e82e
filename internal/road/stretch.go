package road

import (
	"math"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/vehicle"
)

// Level is the S2 level of the cells, which are about 70 m wide at this level. On the roads of
// docs/verdicts.md, level 16 (140 m) gave equally good verdicts, but at level 16 a street 70 m from
// a motorway shares the stretches of the motorway.
const Level = 17

// Octants is the number of directions of travel. The first is north, the second north-east.
const Octants = 8

const octantDegrees = 360.0 / Octants

// stretchAt returns the stretch at a position in degrees, in one of the eight directions of travel
// (octants). It stores the octant in the low bits of the cell's number: these bits are the same for
// all cells of one level, so they are not needed to tell cells apart.
func stretchAt(latitude, longitude float64, octant uint8) vehicle.Stretch {
	cell := s2.CellIDFromLatLng(s2.LatLngFromDegrees(latitude, longitude).Normalized()).Parent(Level)
	return vehicle.Stretch(uint64(cell) | uint64(octant))
}

func cellOf(s vehicle.Stretch) s2.CellID { return s2.CellID(uint64(s) &^ (Octants - 1)) }

// Valid reports whether s can be the name of a stretch.
func Valid(s vehicle.Stretch) bool {
	c := cellOf(s)
	return c.IsValid() && c.Level() == Level
}

// HeadingDegrees returns the direction of travel of a stretch, in degrees clockwise from north.
func HeadingDegrees(s vehicle.Stretch) float64 {
	return octantDegrees * float64(uint64(s)&(Octants-1))
}

// Centre returns the middle of a stretch's cell, in degrees.
func Centre(s vehicle.Stretch) (latitude, longitude float64) {
	c := cellOf(s).LatLng()
	return c.Lat.Degrees(), c.Lng.Degrees()
}

// Neighbours returns the stretches into which traffic on s may flow, or from which it may come: those
// of the same cell and of the cells around it whose direction of travel differs by at most 45°.
func Neighbours(s vehicle.Stretch) (near []vehicle.Stretch) {
	octant := uint64(s) & (Octants - 1)
	for _, cell := range append(cellOf(s).AllNeighbors(Level), cellOf(s)) {
		for _, turn := range [...]uint64{0, 1, Octants - 1} {
			if n := vehicle.Stretch(uint64(cell) | (octant+turn)%Octants); n != s {
				near = append(near, n)
			}
		}
	}
	return near
}

// MetresBetween returns the distance between the middles of two stretches.
func MetresBetween(a, b vehicle.Stretch) float64 {
	return cellOf(a).LatLng().Distance(cellOf(b).LatLng()).Radians() * earthMetres
}

func octantOf(degrees float64) uint8 {
	return uint8(int(math.Floor(degrees/octantDegrees+0.5)) & (Octants - 1))
}

// earthMetres is the mean radius of the earth (IUGG).
const earthMetres = 6_371_008.8

// offset returns how far the second of two close positions is to the east and to the north of the
// first, in metres. It uses an equirectangular projection: near a pole the result is too far to the
// east, but never NaN.
func offset(fromLatitude, fromLongitude, toLatitude, toLongitude float64) (east, north float64) {
	turn := toLongitude - fromLongitude
	if turn > 180 {
		turn -= 360
	} else if turn < -180 {
		turn += 360
	}
	const perDegree = math.Pi / 180 * earthMetres
	return turn * perDegree * math.Cos((fromLatitude+toLatitude)/2*math.Pi/180), (toLatitude - fromLatitude) * perDegree
}
