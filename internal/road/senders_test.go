//go:build !race

package road_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func (c *car) light(t testing.TB, metres float64, waits time.Duration, on float64) {
	t.Helper()
	second := float64(time.Second)
	c.drive(t, 50, 90, time.Duration(metres/50*3.6*second))
	for kmh := 47.; kmh > 0; kmh -= 7 {
		c.drive(t, kmh, 90, time.Second)
	}
	c.drive(t, 0, 90, waits)
	for kmh := 2.5; kmh < 50; kmh += 5 {
		c.drive(t, kmh, 90, time.Second)
	}
	c.drive(t, 50, 90, time.Duration(on/50*3.6*second))
}

// The same drives teach the same free flow, however often the cars report. Where cars stop, the
// line of a minute is not the way, so the light is only checked up to 30 s.
func TestFreeFlowAtAnyInterval(t *testing.T) {
	motorway := func(m *road.Map, reports []time.Duration) {
		f := flow{degrees: 90, east: -6000, north: 20, metres: 12_000, every: 4 * time.Minute, from: start.Add(-day),
			reports: reports}
		var flows []flow
		for _, f.kmh = range []float64{95, 110, 125} {
			f.name, f.cars = fmt.Sprint(f.kmh, " "), 15
			flows = append(flows, f)
		}
		f.name, f.kmh, f.cars, f.every, f.from = "jam", 30, 10, time.Minute, f.from.Add(time.Hour)
		run(t, m, append(flows, f)...)
	}
	lights := func(m *road.Map, reports []time.Duration) {
		for k := range 90 {
			c := newCar(m, fmt.Sprint("car", k), -2000, 20, start.Add(-day+time.Duration(k)*time.Minute))
			c.every = reports[k%len(reports)]
			c.due = c.at.Add(time.Duration(17*k) * time.Second % c.every)
			c.light(t, 2000, time.Duration(7*k%41)*time.Second, 2000)
		}
	}
	intervals := []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
		2 * time.Minute}
	for _, way := range []struct {
		name  string
		teach func(*road.Map, []time.Duration)
		most  int
	}{{"motorway", motorway, 6}, {"lights", lights, 4}} {
		var want [3]float64
		for i := range way.most + 1 {
			reports := intervals[:way.most] // mixed
			if i < way.most {
				reports = intervals[i : i+1]
			}
			var m road.Map
			way.teach(&m, reports)
			for k, east := range []float64{120, 160, 200} { // after the light
				f := flow{name: way.name, east: east - 900, north: 20, degrees: 90, kmh: 50, metres: 900}
				got := freeKmh(t, &m, f, start)
				if i == 0 {
					want[k] = got
				}
				if math.Abs(got-want[k]) > 0.1*want[k] {
					t.Errorf("%s: cars that report every %v teach %.1f km/h at %g m, want %.1f", way.name, reports, got, east,
						want[k])
				}
			}
		}
	}
}

// False speeds are refuted within 750 m and two reports.
func TestSpeedsAgainstPositions(t *testing.T) {
	for _, c := range []struct {
		name        string
		kmh, claims float64
		want        driving.State
	}{
		{"m/s", 50, 50 / 3.6, driving.Normal},
		{"m/s on a motorway", 110, 110 / 3.6, driving.Normal},
		{"mph", 50, 50 / 1.609, driving.Normal},
		{"0 for unknown", 50, 0, driving.Normal},
		{"255 for unknown", 50, 255, driving.Normal},
		{"255 in a jam", 9, 255, driving.Jam},
		{"mph in a jam", 9, 9 / 1.609, driving.Jam},
	} {
		for _, every := range []time.Duration{time.Second, 5 * time.Second} {
			x := newCar(new(road.Map), c.name, 0, 0, start)
			x.every, x.claims = every, &c.claims
			metres := 0.0
			for ; metres < 750+c.kmh/3.6*2*every.Seconds() && !x.state.Way.Distrusted; metres += c.kmh / 3.6 {
				x.drive(t, c.kmh, 90, time.Second)
			}
			if !x.state.Way.Distrusted {
				t.Errorf("%s every %v, %.0f m: got trust, want a refutation: %+v", c.name, every, metres, x.state.Way)
			}
			x.drive(t, c.kmh, 90, 3*time.Minute)
			if got := x.state.Driving().State; got != c.want {
				t.Errorf("%s every %v is %s, want %s: %s", c.name, every, got, c.want, x.state.ExplainDriving().Text)
			}
		}
	}
}

// True speeds are not refuted where the way is longer than the lines.
func TestWindingStreet(t *testing.T) {
	for name, headings := range map[string][]float64{
		"zigzag": {45, 135}, "hairpins": {80, 280}, "blocks": {0, 90, 180, 90}, "round a block": {0, 90, 180, 270},
	} {
		for _, seconds := range []time.Duration{1, 5, 10, 15, 30, 45, 60} {
			every := seconds * time.Second
			c := newCar(new(road.Map), name, 0, 0, start)
			c.every = every
			for i := range 60 {
				c.drive(t, float64(36+i%7), headings[i%len(headings)], 13*time.Second)
				if c.state.Way.Distrusted {
					t.Errorf("%s every %v: got a refutation after %d corners, want none", name, every, i)
					break
				}
			}
		}
	}
}

func TestSparseReadings(t *testing.T) {
	c := newCar(new(road.Map), "car", 0, 0, start)
	c.every = 30 * time.Second
	for i := range 40 {
		c.drive(t, float64(30*(i%2)), 90, 2*time.Second)
		c.drive(t, 17, 90, 28*time.Second)
	}
	if got := c.state.Driving().State; got != driving.Slow || c.state.Way.Distrusted {
		t.Errorf("17 km/h in a street is %s, want slow: %s", got, c.state.ExplainDriving().Text)
	}
}

// The speed of the last position would be taken for a true one.
func TestTunnel_FrozenPosition(t *testing.T) {
	c := newCar(new(road.Map), "tunnel", 0, 0, start)
	c.drive(t, 80, 90, 2*time.Minute)
	for i := range 120 {
		c.at = c.at.Add(step)
		c.report(c.fix(t, 70.5+float64(i%20)))
		if v := c.state.Driving(); v.State != driving.Normal || c.state.Way.Distrusted {
			t.Fatalf("after %d reports in the tunnel: got %+v, want %s and trust", i, v, driving.Normal)
		}
	}
	c.move(80/3.6*240, 0)
	c.drive(t, 80, 90, time.Minute)
	if v := c.state.Driving(); v.State != driving.Normal || c.state.Way.Distrusted || c.state.Way.Time != c.at {
		t.Errorf("behind the tunnel: got %+v, way %+v; want %s, trust and a way of now", v, c.state.Way, driving.Normal)
	}
}

func TestPositionsWithoutSpeeds(t *testing.T) {
	none, m := math.NaN(), jam(t)
	for _, every := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		c := newCar(new(road.Map), "alone", 0, 0, start)
		c.every, c.claims = every, &none
		c.drive(t, 60, 90, 4*time.Minute)
		if v := c.state.Driving(); v.State != driving.Normal || c.at.Sub(v.Time) > every {
			t.Errorf("every %v at 60 km/h: got %+v, want %s, at most as old", every, v, driving.Normal)
		}
		c.drive(t, 0, 90, 15*time.Minute)
		if v := c.state.Driving(); !v.NotDriving {
			t.Errorf("every %v, parked: got %+v, want not driving", every, v)
		}
		x := newCar(m, "jammed", -700, 0, start.Add(time.Minute))
		x.every, x.claims = every, &none
		x.drive(t, 12, 90, 2*time.Minute)
		x.is(t, driving.Jam)
	}
}

func TestParked_Drift(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for name, stands := range map[string]func(c *car, i int) (kmh float64){
		"drift": func(c *car, _ int) float64 {
			c.move(50*random.Float64()-25, 50*random.Float64()-25)
			return 3 * random.Float64()
		},
		"kept speed": func(*car, int) float64 { return 8 },
		"wrong fix": func(c *car, i int) float64 {
			if i%200 == 199 {
				c.move(0, 80)
			}
			return 0
		},
	} {
		for _, every := range []time.Duration{5 * time.Second, time.Minute} {
			c := newCar(new(road.Map), name, 0, 0, start)
			c.every = every
			c.drive(t, 40, 90, 5*time.Minute)
			latitude, longitude := c.latitude, c.longitude
			for i := range int(time.Hour / every) {
				c.at = c.at.Add(every)
				kmh := stands(c, i)
				c.report(c.fix(t, kmh))
				c.latitude, c.longitude = latitude, longitude
				if v := c.state.Driving(); time.Duration(i)*every > 15*time.Minute && !v.NotDriving {
					t.Errorf("%s every %v: after %v got %s, want not driving: %s", name, every, time.Duration(i)*every,
						v.State, c.state.ExplainDriving().Text)
					break
				}
			}
		}
	}
}

func TestIgnitionOff_Circle(t *testing.T) {
	c := newCar(new(road.Map), "off", 0, 0, start)
	c.drive(t, 40, 90, time.Minute)
	x := c.fix(t, 0)
	x.Time = c.at.Add(time.Second)
	if err := x.SetIgnition(signal.IgnitionOff.String()); err != nil {
		t.Fatalf("the ignition: got %v, want no error", err)
	}
	c.report(x)
	c.at = x.Time
	random := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		c.wait(t, random)
	}
	c.at = c.at.Add(step)
	c.report(c.fix(t, 9))
	c.at = c.at.Add(step)
	c.report(c.fix(t, 9))
	if v := c.state.Driving(); !v.NotDriving {
		t.Errorf("in its circle: got %+v, want not driving", v)
	}
	c.drive(t, 30, 90, 20*time.Second)
	if v := c.state.Driving(); v.State != driving.Normal {
		t.Errorf("out of its circle: got %+v, want %s", v, driving.Normal)
	}
}

// Positions come in samples of their own, late, or in two halves.
func TestGroups(t *testing.T) {
	position := func(c *car, age time.Duration, signals ...signal.Signal) {
		x := vehicle.Sample{Vehicle: c.id, Time: c.at.Add(-age)}
		for _, g := range signals {
			set(t, &x, g, map[signal.Signal]float64{
				signal.CurrentLatitude: c.latitude, signal.CurrentLongitude: c.longitude}[g])
		}
		c.report(x)
	}
	apart := func(by time.Duration) func(*car, int) {
		return func(c *car, _ int) {
			position(c, by, signal.CurrentLatitude)
			position(c, 0, signal.CurrentLongitude)
			c.report(c.sample(t, 12))
		}
	}
	m := jam(t)
	both := []signal.Signal{signal.CurrentLatitude, signal.CurrentLongitude}
	for name, send := range map[string]func(*car, int){
		"1.2 s behind": func(c *car, _ int) {
			c.report(c.sample(t, 12))
			position(c, 1200*time.Millisecond, both...)
		},
		"10 ms apart":  apart(10 * time.Millisecond),
		"900 ms apart": apart(900 * time.Millisecond),
		"two senders": func(c *car, i int) {
			c.report(c.sample(t, 12))
			if i%3 == 0 {
				position(c, 300*time.Millisecond, both...)
			}
		},
		"late and repeated": func(c *car, _ int) {
			c.report(c.fix(t, 12))
			was := c.state.Way
			position(c, 0, both...)
			position(c, 30*time.Second, both...)
			if c.state.Way != was {
				t.Errorf("the way after a late position: got %+v, want %+v", c.state.Way, was)
			}
		},
	} {
		c := newCar(m, name, -700, 0, start.Add(time.Minute))
		for i := range 45 {
			c.move(12/3.6*step.Seconds(), 0)
			c.at = c.at.Add(step)
			send(c, i)
		}
		c.is(t, driving.Jam)
		if late := c.at.Sub(c.state.Way.Time); late > 3*step {
			t.Errorf("%s: got the last fix %v old, want at most %v", name, late, 3*step)
		}
	}
}

// A constant course does not merge the two directions of a road.
func TestCompassStuck(t *testing.T) {
	for _, course := range []float64{0, 255} {
		var m road.Map
		east := flow{name: "east", east: -1500, degrees: 90, kmh: 50, metres: 3000, compass: &course}
		west := flow{name: "west", east: 1500, north: 5, degrees: 270, kmh: 50, metres: 3000, compass: &course}
		teach(t, &m, east)
		teach(t, &m, west)
		flows := queue(flow{name: "jam", east: -500, degrees: 90, metres: 1000}, start)
		west.cars, west.every, west.from = 12, 15*time.Second, start
		for i := range flows {
			flows[i].compass = &course
		}
		run(t, &m, append(flows, west)...)
		for _, c := range []struct {
			name               string
			east, degrees, kmh float64
			want               driving.State
		}{{"jammed", -300, 90, 12, driving.Jam}, {"opposite", 700, 270, 48, driving.Normal}} {
			x := newCar(&m, c.name, c.east, 0, start.Add(2*time.Minute))
			x.compass = &course
			x.drive(t, c.kmh, c.degrees, time.Minute)
			x.is(t, c.want)
		}
	}
}
