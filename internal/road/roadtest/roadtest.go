// Package roadtest simulates cars on streets, for tests of packages that show what a [road.Map]
// has learned.
package roadtest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/road"
	"example.org/carstate/internal/vehicle"
)

// Street is a straight street in one direction of travel.
type Street struct {
	Name                string  // the names of the street's cars begin with it
	Latitude, Longitude float64 // beginning, in degrees
	Heading             float64 // degrees clockwise from north
	Metres              float64
}

// every is the time between two reports of a car.
const every = 5 * time.Second

// Drive returns the samples, in order of time, of cars that drive along the street at the speed
// kmh. The first car begins at the time from, and each further car begins gap later than the car
// before. A car's name is the street's name, the prefix and a number from 0.
func (s Street) Drive(prefix string, cars int, kmh float64, from time.Time,
	gap time.Duration) (samples []vehicle.Sample) {
	const metresPerDegree = 111_195
	sin, cos := math.Sincos(s.Heading * math.Pi / 180)
	steps := int(s.Metres / (kmh / 3.6 * every.Seconds()))
	for car := range cars {
		for step := range steps + 1 {
			metres := float64(step) * kmh / 3.6 * every.Seconds()
			x := vehicle.Sample{Vehicle: vehicle.ID(fmt.Sprintf("%s%s%d", s.Name, prefix, car)),
				Time: vehicle.At(from.Add(time.Duration(car)*gap + time.Duration(step)*every))}
			for signal, value := range map[vehicle.Signal]float64{
				vehicle.Speed: kmh, vehicle.CurrentHeading: s.Heading,
				vehicle.CurrentLatitude:  s.Latitude + metres*cos/metresPerDegree,
				vehicle.CurrentLongitude: math.Remainder(s.Longitude+metres*sin/metresPerDegree/math.Cos(s.Latitude*math.Pi/180), 360),
			} {
				if err := x.Set(signal, value); err != nil {
					panic(err) // the street leads off the earth
				}
			}
			samples = append(samples, x)
		}
	}
	slices.SortStableFunc(samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return samples
}

// Learn returns the samples of cars that drive along the street in light traffic. They drive in
// five quarter hours that end half an hour before the time until, so that the street's free flow is
// known at that time.
func (s Street) Learn(freeKmh float64, until time.Time) (samples []vehicle.Sample) {
	const quarter = 15 * time.Minute
	for i := range 5 {
		begin := until.Truncate(quarter).Add(time.Duration(i-7) * quarter)
		samples = append(samples, s.Drive(fmt.Sprintf("free%d", i), 6, freeKmh, begin, 20*time.Second)...)
	}
	return samples
}

// StretchAt returns the stretch at a position, in degrees, and in a direction of travel, in
// degrees clockwise from north.
func StretchAt(latitude, longitude, heading float64) vehicle.Stretch {
	cell := s2.CellIDFromLatLng(s2.LatLngFromDegrees(latitude, longitude)).Parent(road.Level)
	octant := uint64(math.Round(heading*road.Octants/360)) % road.Octants
	return vehicle.Stretch(uint64(cell) | octant)
}

// Feed folds samples in their order with m.Observe, and returns the last state of each car.
func Feed(m *road.Map, samples []vehicle.Sample) map[vehicle.ID]vehicle.State {
	states := make(map[vehicle.ID]vehicle.State)
	for _, x := range samples {
		states[x.Vehicle] = m.Observe(states[x.Vehicle], x)
	}
	return states
}
