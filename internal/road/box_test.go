package road_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/test/roadtest"
)

// The stretches of a box are found by looking up cells, or by walking through the map.
func TestConditionsIn(t *testing.T) {
	var m road.Map
	random := rand.New(rand.NewPCG(1, 2))
	var all []driving.Stretch
	add := func(latitude, longitude float64) {
		s := roadtest.StretchAt(latitude, longitude, float64(45*random.IntN(road.Octants)))
		if _, known := m.Condition(s, 0); known {
			return
		}
		all = append(all, s)
		if err := m.Absorb(pack(evidence{Stretch: s, Metres: 1, Seconds: 1})); err != nil {
			t.Fatalf("Absorb: got %v, want no error", err)
		}
	}
	for range 4_000 { // around the date line, a pole and an ordinary town
		add(-17+random.Float64()/20, 180+random.Float64()/20-0.025)
		add(89.9+random.Float64()/10, 360*random.Float64())
		add(44.4+random.Float64()/20, 11.3+random.Float64()/20)
	}
	within := func(b road.Box) (names []driving.Stretch) {
		m.ConditionsIn(b, 0, func(c road.Condition) { names = append(names, c.Stretch) })
		slices.Sort(names)
		return names
	}
	boxes := map[string]road.Box{
		"world": {-180, -90, 180, 90}, "a street": {11.31, 44.41, 11.32, 44.415}, "a town": {11.3, 44.4, 11.35, 44.45},
		"the date line": {179.99, -17, -179.99, -16.97}, "east of it": {-180, -17, -179.99, -16.97},
		"west of it": {179.99, -17, 180, -16.97},
		"the pole":   {-180, 89.95, 180, 90}, "a point": {11.3, 44.4, 11.3, 44.4}, "a meridian": {11.3, -90, 11.3, 90},
		"nothing": {180, -1, -180, 1}, "around a stretch": road.Around(roadtest.StretchAt(-17+0.02, 180, 0), 500),
		"around the pole": road.Around(roadtest.StretchAt(90, 0, 0), 500),
	}
	for name, b := range boxes {
		var want []driving.Stretch
		for _, s := range all {
			latitude, longitude := road.Centre(s)
			inside := b.West <= longitude && longitude <= b.East
			if b.West > b.East {
				inside = longitude >= b.West || longitude <= b.East
			}
			if inside && b.South <= latitude && latitude <= b.North {
				want = append(want, s)
			}
		}
		slices.Sort(want)
		if got := within(b); !slices.Equal(got, want) {
			t.Errorf("%s: got %d stretches, want %d", name, len(got), len(want))
		}
		if len(want) == 0 && (name == "a street" || name == "the date line" || name == "around a stretch" ||
			name == "around the pole") {
			t.Errorf("%s: got no stretch, want some to test with", name)
		}
	}
	if b := road.Around(roadtest.StretchAt(44.4, 11.3, 0), 1000); math.Abs((b.North-b.South)*111.2-2) > 0.01 ||
		math.Abs((b.East-b.West)*79.4-2) > 0.01 {
		t.Errorf("1 km around: got %+v, want 2 km by 2 km", b)
	}
}
