//go:build !race

package road_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
)

// Verdicts do not depend on where the borders of cells lie.
func TestAnyPlace(t *testing.T) {
	const places = 40
	drives := []struct {
		name   string
		others int
		kmh    float64
		waits  time.Duration
		want   driving.State
	}{
		{"light of 35 s", 0, 50, 35 * time.Second, driving.Normal},
		{"light of 60 s", 0, 50, time.Minute, driving.Normal},
		{"jam", 5, 9, 0, driving.Jam},
	}
	var right [3][18]int
	for place := range places {
		var m road.Map
		begin := func(name string, at signal.UnixMilli) *car {
			c := newCar(&m, name, 11*float64(place), 29*float64(place), at)
			c.every = 5 * time.Second
			return c
		}
		for k := range 30 {
			begin(fmt.Sprint("learns", k), start.Add(-day+time.Duration(3*k)*time.Minute)).
				light(t, 500, time.Duration(7*k%41)*time.Second, 1100)
		}
		for i, d := range drives {
			at := start.Add(time.Duration(i) * time.Hour)
			for k := range d.others {
				begin(fmt.Sprint("crawls", k), at.Add(time.Duration(10*k-60)*time.Second)).drive(t, d.kmh, 90, 3*time.Minute)
			}
			c := begin(d.name, at)
			c.drive(t, d.kmh, 90, 40*time.Second)
			for moment := range right[i] {
				kmh := d.kmh
				if time.Duration(moment)*5*time.Second < d.waits {
					kmh = 0
				}
				c.drive(t, kmh, 90, 5*time.Second)
				if c.state.Driving().State == d.want {
					right[i][moment]++
				}
			}
		}
	}
	for i, d := range drives {
		if least := slices.Min(right[i][:]); least < places*95/100 {
			t.Errorf("%s: got %d of %d places always in %s, want %d", d.name, least, places, d.want, places*95/100)
		}
	}
}

// Cars that are stationary for 40 min are in a jam, or parked if a car has passed them freely.
func TestClosedRoad(t *testing.T) {
	for _, passes := range []bool{false, true} {
		var m road.Map
		teach(t, &m, street)
		var cars []*car
		for k := range 12 {
			c := newCar(&m, fmt.Sprint("waits", k), street.east, street.north, start.Add(time.Duration(4*k)*time.Second))
			c.every = 10 * time.Second
			c.drive(t, 45, 90, time.Duration(80-k)*time.Second)
			cars = append(cars, c)
		}
		for minute := range 40 {
			for _, c := range cars {
				c.drive(t, 0, 90, time.Minute)
			}
			if passes && minute == 4 {
				newCar(&m, "passes", street.east, street.north, cars[0].at).drive(t, 45, 90, 2*time.Minute)
			}
		}
		for _, c := range cars {
			if v := c.state.Driving(); passes && !v.NotDriving || !passes && v.State != driving.Jam {
				t.Errorf("got %s, want jam or, if %t, not driving: %s", v.State, passes, c.state.ExplainDriving().Text)
			}
		}
	}
}

// It is over two minutes after the others have left. Where a cell has only a corner of the road, a
// few moments may still be slow.
func TestJamIsOver(t *testing.T) {
	moments, normal := 0, 0
	for place := range 5 {
		var m road.Map
		f := street
		f.north += 13 * float64(place)
		teach(t, &m, f)
		var flows []flow
		for k := range 20 {
			flows = append(flows, flow{name: fmt.Sprintf("creeps%d", k), cars: 1, from: start, east: -900 + 8*float64(k),
				north: f.north, degrees: 90, kmh: 6, metres: 800})
		}
		cars := run(t, &m, flows...)
		left := cars[0].at
		cars[0].is(t, driving.Jam)
		for range 30 {
			for _, c := range cars {
				c.drive(t, 50, 90, step)
			}
		}
		x := newCar(&m, "comes", -1400, f.north, left.Add(80*time.Second))
		x.drive(t, 45, 90, 40*time.Second)
		for range 24 {
			x.drive(t, 45, 90, 2*step)
			moments++
			switch x.state.Driving().State {
			case driving.Normal:
				normal++
			case driving.Jam:
				t.Errorf("two minutes later: got a jam, want none: %s", x.state.ExplainDriving().Text)
			}
		}
	}
	if normal < moments*95/100 {
		t.Errorf("two minutes later: got %d of %d moments normal, want %d", normal, moments, moments*95/100)
	}
}

// A car that passes crawling cars is normal after 300 m, and one in stop and go among them is in a
// jam.
func TestTwoStreams(t *testing.T) {
	var m road.Map
	teach(t, &m, street)
	run(t, &m, queue(flow{name: "crawl", east: -1200, north: street.north, degrees: 90, metres: 1200}, start)...)
	at := start.Add(50 * time.Second) // the queue moves until two minutes after start
	x := newCar(&m, "passes", -1700, street.north, at)
	x.drive(t, 45, 90, 72*time.Second) // to the last of the queue
	x.drive(t, 45, 90, 24*time.Second)
	for range 10 {
		x.drive(t, 45, 90, step)
		if got := x.state.Driving().State; got != driving.Normal {
			t.Errorf("the car: got %s, want %s: %s", got, driving.Normal, x.state.ExplainDriving().Text)
		}
	}
	y := newCar(&m, "stops", -900, street.north, at)
	for range 5 {
		y.drive(t, 0, 90, 10*time.Second)
		y.drive(t, 14, 90, 6*time.Second)
	}
	y.is(t, driving.Jam)
}

// Cars that look for a place show nothing, and are in no jam.
func TestCarPark(t *testing.T) {
	var m road.Map
	random := rand.New(rand.NewPCG(9, 10))
	for k := range 25 {
		c := newCar(&m, fmt.Sprint("parks", k), 0, 0, start.Add(time.Duration(k)*10*time.Second))
		for range 60 {
			heading := 360 * random.Float64()
			east := (c.longitude - townLongitude) * metresPerDegree * math.Cos(townLatitude*math.Pi/180)
			if north := (c.latitude - townLatitude) * metresPerDegree; math.Hypot(east, north) > 70 {
				heading = math.Atan2(-east, -north) * 180 / math.Pi
			}
			c.drive(t, 11*random.Float64(), heading, 10*time.Second)
		}
		if c.worst == driving.Jam {
			t.Errorf("%s: got a jam, want none", c.id)
		}
	}
	if n := m.Len(); n != 0 {
		t.Errorf("the known stretches: got %d, want 0", n)
	}
}

// A free flow does not rise with the number of days.
func TestFourteenDays(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	var m road.Map
	var first, last float64
	f := street
	f.metres, f.cars, f.every = 900, 4, 30*time.Second
	for d := range 14 {
		for quarter := range 40 {
			f.from = start.Add(time.Duration(d-14)*day + time.Duration(quarter)*15*time.Minute)
			if f.name, f.kmh = fmt.Sprint(f.from, " "), 45*(0.8+0.4*random.Float64()); quarter == 20 {
				f.kmh = 80
			}
			run(t, &m, f)
		}
		if last = freeKmh(t, &m, street, f.from.Add(time.Hour)); d == 0 {
			first = last
		}
	}
	if math.Abs(last-first) > 0.05*first {
		t.Errorf("the free flow: got %.1f km/h, want %.1f within 5 %%", last, first)
	}
}
