//go:build !race

package road_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
)

// One car that claims to be stationary, or 200 km/h, changes no verdict of others.
func TestLyingSource(t *testing.T) {
	for _, claims := range []float64{0, 200} {
		for _, known := range []bool{true, false} {
			var m road.Map
			if known {
				teach(t, &m, street)
			}
			f := street
			f.cars, f.every, f.from = 40, 20*time.Second, start
			liar := f
			liar.name, liar.cars, liar.from, liar.claims = "lies", 1, start.Add(2*time.Minute), &claims
			for _, c := range run(t, &m, f, liar)[:f.cars] {
				if c.worst != driving.Normal {
					t.Errorf("beside a car that claims %g km/h, on a known road %t: %s: got %s, want %s", claims, known,
						c.id, c.worst, driving.Normal)
				}
			}
		}
	}
}

// On a road with few cars they do make one, as SECURITY.md says.
func TestFewLiars_BusyRoad(t *testing.T) {
	for _, kmh := range []float64{4, 7.5} {
		var m road.Map
		teach(t, &m, street)
		f := street
		f.cars, f.every, f.from = 60, 4*time.Second, start
		liars := street
		liars.name, liars.cars, liars.every, liars.from, liars.east = "lies", 3, 2*time.Second, start.Add(time.Minute),
			street.east+1000
		liars.kmh, liars.metres = kmh, kmh/3.6*150
		for _, c := range run(t, &m, f, liars)[:f.cars] {
			if c.worst == driving.Jam {
				t.Errorf("beside three cars that claim %g km/h: got %s in a jam, want it in none", kmh, c.id)
			}
		}
	}
}

// A car that is stationary for nine minutes makes no jam, wherever it is: noise must not make it
// count as several cars or on several stretches.
func TestNoiseMovesNoStandingCar(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for metres := 0.0; metres < 80; metres += 8 {
		var m road.Map
		teach(t, &m, street)
		waiting := newCar(&m, "waiting", -420+metres, street.north, start)
		waiting.drive(t, 45, 90, 6*time.Second)
		var passing []*car
		for waiting.at < start.Add(9*time.Minute) {
			if k := waiting.at.Sub(start) / step; k%10 == 3 { // one every 20 s
				passing = append(passing, newCar(&m, fmt.Sprintf("passes%d", k), -900, street.north, waiting.at))
			}
			for _, c := range passing {
				c.drive(t, 45, 90, step)
			}
			waiting.wait(t, random)
		}
		for _, c := range conditions(&m, waiting.at) {
			if c.State == driving.Jam {
				t.Errorf("%g m on: got a jam of %d cars at %.0f km/h, want none", metres, c.Cars, c.SpeedKmh)
			}
		}
	}
}

func jammed(from signal.UnixMilli) flow {
	f := street
	f.name, f.cars, f.every, f.from, f.kmh, f.metres = fmt.Sprintf("jammed%d ", from), 40, 90*time.Second, from, 9, 900
	return f
}

// 9 km/h is not normal on a road that was never faster, even if one car a day claims 200 km/h.
func TestOnlyEverJammed(t *testing.T) {
	var m road.Map
	claims := 200.0
	for d := range 22 {
		today := start.Add(time.Duration(d) * day)
		liar := jammed(today)
		liar.name, liar.cars, liar.claims = "lies", 1, &claims
		cars := run(t, &m, liar, jammed(today))
		if d != 0 && d != 21 {
			continue
		}
		c := cars[len(cars)-1]
		if got := c.state.Driving().State; got != driving.Jam && got != driving.Slow {
			t.Errorf("day %d: got %s in %s, want it in %s or %s", d, c.id, got, driving.Jam, driving.Slow)
		}
		if a := c.state.Road; a.FreeKmh < 15 || !a.Young || a.Cars == 0 {
			t.Errorf("the road on day %d: got %+v, want a young one with cars, at 15 km/h or more", d, a)
		}
		if text := c.state.ExplainDriving().Text; !strings.Contains(text, "the road is young") {
			t.Errorf(`day %d: got %q, want "the road is young" in it`, d, text)
		}
	}
}

// No car exceeds 60 km/h for five weeks where 110 was free. That is learned after 7 to 35 days.
func TestRoadworks(t *testing.T) {
	var m road.Map
	f := eastbound
	f.cars, f.every, f.metres = 60, 3*time.Minute, 1800
	for d := -14; d < 0; d++ {
		f.name, f.from = fmt.Sprintf("free%d ", d), start.Add(time.Duration(d)*day)
		run(t, &m, f)
	}
	f.kmh = 60
	learned := 0
	for d := range 36 {
		today := start.Add(time.Duration(d) * day)
		f.name, f.from = fmt.Sprintf("works%d ", d), today
		run(t, &m, f)
		switch free := freeKmh(t, &m, f, today.Add(5*time.Hour)); {
		case d <= 1 && free < 100:
			t.Errorf("day %d: got a free flow of %g km/h, want 100 or more", d, free)
		case learned == 0 && free < 66:
			learned = d
		}
	}
	if learned < 7 || learned > 35 {
		t.Errorf("the free flow: got it learned after %d days, want 7 to 35", learned)
	}
}

// The few fast cars decide, although each is on a stretch for seconds only.
func TestFewFastCars(t *testing.T) {
	var m road.Map
	f := eastbound
	f.name, f.cars, f.every, f.from, f.metres = "fast", 20, 3*time.Minute, start.Add(-day), 1800
	run(t, &m, f)
	f.name, f.cars, f.every, f.from, f.kmh = "slow", 60, time.Minute, start.Add(-day/2), 60
	run(t, &m, f)
	if free := freeKmh(t, &m, f, start); free < 100 {
		t.Errorf("a road of 110 km/h: got a free flow of %.0f, want 100 or more", free)
	}
}

// Late evidence teaches, but does not change the present traffic.
func TestYesterdayComesLate(t *testing.T) {
	var m road.Map
	f := street
	f.cars, f.every, f.from, f.kmh, f.metres = 20, 15*time.Second, start, 9, 600
	run(t, &m, f)
	now := start.Add(4 * time.Minute)
	before := conditions(&m, now)
	shown := 0
	for _, c := range before {
		if c.Cars > 0 {
			shown++
		}
	}
	if shown == 0 {
		t.Fatal("the stretches with cars: got none, want some")
	}
	late := street
	late.name, late.metres = "late", 600
	teach(t, &m, late)
	for name, was := range before {
		is, _ := m.Condition(name, now)
		if is.Cars != was.Cars || is.SpeedKmh != was.SpeedKmh {
			t.Errorf("what is on a stretch: got %d cars at %g km/h, want %d at %g", is.Cars, is.SpeedKmh, was.Cars,
				was.SpeedKmh)
		}
		if was.Cars > 0 && is.FreeKmh < was.FreeKmh {
			t.Errorf("the free flow of a stretch: got %g km/h, want %g or more", is.FreeKmh, was.FreeKmh)
		}
	}
	c := newCar(&m, "asks", late.east, late.north, now)
	c.drive(t, 9, 90, time.Minute)
	c.is(t, driving.Jam)
	if a := c.state.Road; a.Young || a.FreeKmh < 40 || a.FreeKmh > 50 {
		t.Errorf("the road: got %+v, want one that is not young, at 40 to 50 km/h", a)
	}
}

// One or two cars show nothing to others, and are not stored.
func TestFewCarsShowNothing(t *testing.T) {
	for cars := 1; cars < 3; cars++ {
		var m road.Map
		f := street
		f.cars, f.every, f.from = cars, 5*time.Second, start
		for _, c := range run(t, &m, f) {
			if c.state.Way.Count == 0 {
				t.Fatalf("%s: got no way, want one", c.id)
			}
			if (c.state.Road != driving.RoadAround{Time: c.state.Time}) {
				t.Errorf("the road of %d cars: got %+v, want only its time", cars, c.state.Road)
			}
		}
		all := conditions(&m, start.Add(2*time.Minute))
		if len(all) == 0 || len(all) != m.Len() {
			t.Fatalf("the stretches with a condition: got %d, want %d, not 0", len(all), m.Len())
		}
		for _, x := range all {
			if x != (road.Condition{Stretch: x.Stretch, Young: true}) {
				t.Errorf("%d cars: got %+v, want a young stretch without numbers", cars, x)
			}
		}
		if packed := m.Changed(func(road.Tile) bool { return true }); len(packed) != 0 {
			t.Errorf("%d cars: got %d records, want 0", cars, len(packed))
		}
	}
}

func TestNotDriving(t *testing.T) {
	var m road.Map
	c := newCar(&m, "parked", 0, 0, start)
	for range 60 {
		c.move(2, 0)
		c.at = c.at.Add(step)
		x := c.fix(t, 0)
		if err := x.SetIgnition(signal.IgnitionOff.String()); err != nil {
			t.Fatalf("the ignition: got %v, want no error", err)
		}
		c.report(x)
	}
	if !c.state.Driving().NotDriving || c.state.Way.Count == 0 {
		t.Fatalf("the verdict is %+v with a way of %d stretches, want not driving and a way",
			c.state.Driving(), c.state.Way.Count)
	}
	if n := m.Len(); n != 0 {
		t.Errorf("the known stretches: got %d, want 0", n)
	}
}

func TestEdgesOfTheEarth(t *testing.T) {
	for _, c := range []struct {
		name                         string
		latitude, longitude, degrees float64
	}{
		{"date line eastward", 10, 180 - 0.003, 90},
		{"date line westward", -17, -180 + 0.003, 270},
		{"date line aslant", 65, 180 - 0.003, 45},
		{"zero meridian", 51.5, -0.003, 90},
		{"equator", -0.003, 30, 0},
		{"both", -0.003, -0.003, 45},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m road.Map
			x := newCarAt(&m, "over", c.latitude, c.longitude, start)
			x.drive(t, 50, c.degrees, step)
			for range 40 {
				x.drive(t, 50, c.degrees, step)
				inBounds(t, &x.state)
			}
			var metres float32
			for _, s := range x.state.Way.Steps[:x.state.Way.Count] {
				metres += s.Metres
				if road.HeadingDegrees(s.Stretch) != c.degrees {
					t.Errorf("the heading of a stretch: got %g, want %g", road.HeadingDegrees(s.Stretch), c.degrees)
				}
			}
			if metres < 300 {
				t.Errorf("the way: got %g m, want 300 or more", metres)
			}
			if n := m.Len(); n < 1100/100 || n > 1100/40+4 {
				t.Errorf("the stretches on 1.1 km: got %d, want %d to %d", n, 1100/100, 1100/40+4)
			}
			for why := range road.NumDropped {
				if m.Dropped[why].Load() != 0 {
					t.Errorf("fixes dropped as %s: got %d, want 0", why, m.Dropped[why].Load())
				}
			}
		})
	}
}
