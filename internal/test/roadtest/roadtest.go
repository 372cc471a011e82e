// Package roadtest simulates cars for tests of what a [road.Map] has learned.
package roadtest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

type Street struct {
	Name                string  // its cars' names begin with it
	Latitude, Longitude float64 // beginning, in degrees
	Heading             float64 // degrees from north
	Metres              float64
}

const every = 5 * time.Second

// Drive returns the samples, in order of time, of cars that begin gap after each other, named by
// street, prefix and a number from 0.
func (s Street) Drive(prefix string, cars int, kmh float64, from time.Time,
	gap time.Duration) (samples []vehicle.Sample) {
	const metresPerDegree = 111_195
	sin, cos := math.Sincos(s.Heading * math.Pi / 180)
	steps := int(s.Metres / (kmh / 3.6 * every.Seconds()))
	for car := range cars {
		for step := range steps + 1 {
			metres := float64(step) * kmh / 3.6 * every.Seconds()
			x := vehicle.Sample{Vehicle: vehicle.ID(fmt.Sprintf("%s%s%d", s.Name, prefix, car)),
				Time: signal.At(from.Add(time.Duration(car)*gap + time.Duration(step)*every))}
			for g, value := range map[signal.Signal]float64{
				signal.Speed: kmh, signal.CurrentHeading: s.Heading,
				signal.CurrentLatitude:  s.Latitude + metres*cos/metresPerDegree,
				signal.CurrentLongitude: math.Remainder(s.Longitude+metres*sin/metresPerDegree/math.Cos(s.Latitude*math.Pi/180), 360),
			} {
				if err := x.Set(g, value); err != nil {
					panic(err) // the street leads off the earth
				}
			}
			samples = append(samples, x)
		}
	}
	slices.SortStableFunc(samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return samples
}

func (s Street) Learn(freeKmh float64, until time.Time) (samples []vehicle.Sample) {
	const quarter = 15 * time.Minute
	for i := range 5 {
		begin := until.Truncate(quarter).Add(time.Duration(i-7) * quarter)
		samples = append(samples, s.Drive(fmt.Sprintf("free%d", i), 6, freeKmh, begin, 20*time.Second)...)
	}
	return samples
}

func StretchAt(latitude, longitude, heading float64) driving.Stretch {
	cell := s2.CellIDFromLatLng(s2.LatLngFromDegrees(latitude, longitude)).Parent(road.Level)
	octant := uint64(math.Round(heading*road.Octants/360)) % road.Octants
	return driving.Stretch(uint64(cell) | octant)
}

func Feed(m *road.Map, samples []vehicle.Sample) map[vehicle.ID]vehicle.State {
	states := make(map[vehicle.ID]vehicle.State)
	for _, x := range samples {
		s := states[x.Vehicle]
		m.Fold(&s, &x, false)
		states[x.Vehicle] = s
	}
	return states
}
