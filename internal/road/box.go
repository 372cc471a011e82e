package road

import (
	"math"

	"github.com/golang/geo/r1"
	"github.com/golang/geo/s1"
	"github.com/golang/geo/s2"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
)

// Box, in degrees, crosses the date line if West is greater than East.
type Box struct{ West, South, East, North float64 }

var World = Box{West: -180, South: -90, East: 180, North: 90}

func (b Box) rect() s2.Rect {
	const perDegree = math.Pi / 180
	return s2.Rect{
		Lat: r1.Interval{Lo: b.South * perDegree, Hi: b.North * perDegree},
		Lng: s1.IntervalFromEndpoints(b.West*perDegree, b.East*perDegree),
	}
}

// Around returns a box with sides metres away from s.
func Around(s driving.Stretch, metres float64) Box {
	r := s2.CapFromCenterAngle(cellOf(s).Point(), s1.Angle(metres/earthMetres)).RectBound()
	lo, hi := r.Lo(), r.Hi()
	return Box{West: lo.Lng.Degrees(), South: lo.Lat.Degrees(), East: hi.Lng.Degrees(), North: hi.Lat.Degrees()}
}

// cellMetres is a low estimate of a cell's width.
const cellMetres = 45

// ConditionsIn looks up each cell of a small box, or scans all stretches. It calls do without a lock.
func (m *Map) ConditionsIn(b Box, at signal.UnixMilli, do func(Condition)) {
	box := b.rect()
	wide := box.Lng.Length() * earthMetres / cellMetres
	high := box.Lat.Length() * earthMetres / cellMetres
	if (wide+2)*(high+2)*Octants >= float64(m.Len()) {
		for s := range m.all {
			if box.ContainsLatLng(cellOf(s.name).LatLng()) {
				do(s.condition(unixOf(at)))
			}
		}
		return
	}
	middle := s2.CellIDFromLatLng(box.Center()).Parent(Level)
	for _, cell := range s2.FloodFillRegionCovering(box, middle) {
		if !box.ContainsLatLng(cell.LatLng()) {
			continue
		}
		for octant := range uint64(Octants) {
			if c, ok := m.Condition(driving.Stretch(uint64(cell)|octant), at); ok {
				do(c)
			}
		}
	}
}
