package roadmap

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
)

// Jam is a group of neighbouring stretches. Length, delay and speed are those of the longest way
// through it.
type Jam struct {
	Stretches []string `json:"stretches"` // the worst first; see [Name]
	// Place and Heading are of the worst stretch.
	Place
	Heading      float64    `json:"heading"` // degrees clockwise from north
	LengthMetres float64    `json:"length_metres"`
	DelaySeconds float64    `json:"delay_seconds"` // of a car, compared with light traffic
	SpeedKmh     float64    `json:"speed_kmh"`
	Since        *time.Time `json:"since"` // of its first stretch; null: unknown
}

func (j Jam) Kilometres() float64 { return j.LengthMetres / 1000 }

func jams(worst []road.Condition) (found []Jam) {
	conditions := make(map[driving.Stretch]road.Condition)
	for _, c := range worst {
		if c.State == driving.Jam {
			conditions[c.Stretch] = c
		}
	}
	for _, c := range worst {
		if _, left := conditions[c.Stretch]; !left {
			continue
		}
		group, _ := reach(conditions, c.Stretch)
		// The stretch farthest from an arbitrary one is taken as an end of the longest way.
		end := group[len(group)-1]
		from, previous := reach(conditions, end)
		way := []driving.Stretch{from[len(from)-1]}
		for s := way[0]; s != end; way = append(way, s) {
			s = previous[s]
		}
		found = append(found, describeJam(conditions, group, way))
		for _, s := range group {
			delete(conditions, s)
		}
	}
	slices.SortStableFunc(found, func(a, b Jam) int { return cmp.Compare(b.DelaySeconds, a.DelaySeconds) })
	return found
}

// reach returns the stretches of a jam by their distance from one of them, and for each the one
// before it on the shortest way.
func reach(
	conditions map[driving.Stretch]road.Condition, from driving.Stretch,
) (reached []driving.Stretch, previous map[driving.Stretch]driving.Stretch) {
	reached, previous = []driving.Stretch{from}, map[driving.Stretch]driving.Stretch{from: from}
	for i := 0; i < len(reached); i++ {
		for _, n := range road.Neighbours(reached[i]) {
			_, jammed := conditions[n]
			if _, known := previous[n]; jammed && !known {
				previous[n] = reached[i]
				reached = append(reached, n)
			}
		}
	}
	return reached, previous
}

func describeJam(conditions map[driving.Stretch]road.Condition, group, way []driving.Stretch) Jam {
	slices.SortFunc(group, func(a, b driving.Stretch) int { return worseFirst(conditions[a], conditions[b]) })
	j := Jam{Place: PlaceOf(group[0]), Heading: road.HeadingDegrees(group[0]), LengthMetres: 2 * halfMetres}
	since := signal.UnixMilli(math.MaxInt64)
	for _, s := range group {
		j.Stretches = append(j.Stretches, Name(s))
		if at := conditions[s].Since; at != 0 {
			since = min(since, at)
		}
	}
	if since != math.MaxInt64 {
		j.Since = new(since.Time())
	}
	// A road beside the border of two cells has stretches in both. The line through every second
	// one is smoother.
	for i := 0; i+1 < len(way); i += 2 {
		j.LengthMetres += road.MetresBetween(way[i], way[min(i+2, len(way)-1)])
	}
	seconds := 0.
	for _, s := range way {
		c, metres := conditions[s], j.LengthMetres/float64(len(way))
		seconds += metres * 3.6 / c.SpeedKmh
		j.DelaySeconds += metres * 3.6 * (1/c.SpeedKmh - 1/c.FreeKmh)
	}
	j.SpeedKmh = round(j.LengthMetres*3.6/seconds, 10)
	j.LengthMetres, j.DelaySeconds = round(j.LengthMetres, .1), math.Round(j.DelaySeconds)
	return j
}

// Place is the middle of a stretch, in degrees, to about a metre.
type Place struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

func PlaceOf(s driving.Stretch) Place {
	latitude, longitude := road.Centre(s)
	return Place{round(latitude, 1e5), round(longitude, 1e5)}
}

func (p Place) String() string { return fmt.Sprintf("%.5f, %.5f", p.Latitude, p.Longitude) }

func (p Place) Link() string {
	return fmt.Sprintf("https://www.openstreetmap.org/?mlat=%.5f&mlon=%.5f#map=16/%[1]v/%[2]v", p.Latitude, p.Longitude)
}
