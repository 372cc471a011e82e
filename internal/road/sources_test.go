//go:build !race

package road_test

import (
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
)

// honest flows at the free flow of the street.
var honest = flow{name: "honest", cars: 90, every: 10 * time.Second, from: start, east: street.east,
	north: street.north, degrees: 90, kmh: 45, metres: 3000, source: gateway, crowd: true}

func streetWithTraffic(t *testing.T) *road.Map {
	t.Helper()
	var m road.Map
	f := street
	f.source, f.crowd = gateway, true
	for d := range 5 {
		f.name, f.cars, f.every, f.from = fmt.Sprint("teaches", d), 60, 90*time.Second, start.Add(-time.Duration(5-d)*day)
		run(t, &m, f)
	}
	return &m
}

// stillJudged: a flow at 45 km/h is normal, and a creeping one a jam.
func stillJudged(t *testing.T, m *road.Map, about string) {
	t.Helper()
	f := honest
	f.cars, f.from = 20, start.Add(time.Hour)
	for _, c := range run(t, m, f) {
		if c.worst != driving.Normal {
			t.Errorf("%s: %s at 45 km/h: got %s, want normal: %s", about, c.id, c.worst, c.state.ExplainDriving().Text)
			break
		}
	}
	f = street
	f.source, f.crowd, f.east, f.metres = gateway, true, -1200, 1200
	run(t, m, queue(f, start.Add(2*time.Hour))...)[0].is(t, driving.Jam)
}

func TestOneSource_FreeFlow(t *testing.T) {
	f := street
	f.name, f.cars, f.every, f.source = "lies", 40, 20*time.Second, liars
	for about, lie := range map[string]struct {
		kmh      float64
		from     time.Duration // after start
		quarters int
	}{
		"290 km/h two days ago":      {290, -2 * day, 12},
		"130 km/h 20 hours ago":      {130, -20 * time.Hour, 12},
		"290 km/h beside traffic":    {290, 0, 1},
		"130 km/h in the quiet hour": {130, -3 * time.Hour, 12},
	} {
		m := streetWithTraffic(t)
		var flows []flow
		for q := range lie.quarters {
			g := f
			g.kmh, g.from, g.stored = lie.kmh, start.Add(lie.from+time.Duration(q)*15*time.Minute), start
			g.name = fmt.Sprint("lies", q)
			flows = append(flows, g)
		}
		if lie.from == 0 {
			flows[0].stored = 0
			flows = append(flows, honest)
		}
		run(t, m, flows...)
		if got := freeKmh(t, m, street, start.Add(time.Hour)); got > 1.3*45+1 {
			t.Errorf("%s: got a free flow of %.0f km/h, want at most %g", about, got, 1.3*45+1)
		}
		stillJudged(t, m, about)
	}
}

// The fastest of the first quarter hours decides.
func TestOneSource_NewRoad(t *testing.T) {
	var m road.Map
	var flows []flow
	for q := range 6 {
		f, lie := honest, street
		f.name, f.from = fmt.Sprint("honest", q), start.Add(time.Duration(q-6)*15*time.Minute)
		lie.name, lie.cars, lie.every, lie.from = fmt.Sprint("lies", q), 80, 10*time.Second, f.from
		lie.kmh, lie.source = 290, liars
		flows = append(flows, f, lie)
	}
	run(t, &m, flows...)
	if got := freeKmh(t, &m, street, start); got > 1.3*45+1 {
		t.Errorf("the free flow: got %.0f km/h, want at most %g", got, 1.3*45+1)
	}
	if m.Doubts(liars)["fast"] == 0 || len(m.Doubts(gateway)) != 0 || m.Doubted(road.Fast) != uint64(m.Doubts(liars)["fast"]) {
		t.Errorf("doubts: got liars %v, gateway %v; want fast, none", m.Doubts(liars), m.Doubts(gateway))
	}
	stillJudged(t, &m, "beside liars")
}

func TestOneSource_FalseJam(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Second, time.Minute, 2 * time.Minute} {
		m := streetWithTraffic(t)
		f := honest
		f.every, f.cars = every, int(12*time.Minute/every)
		lie := street
		lie.name, lie.cars, lie.every, lie.from, lie.east = "lies", 30, 2*time.Second, start.Add(30*time.Second), street.east+1000
		lie.kmh, lie.metres, lie.source = 4, 4/3.6*12*60, liars
		for _, c := range run(t, m, f, lie)[:f.cars] {
			if c.worst == driving.Jam {
				t.Errorf("one every %v: got %s in a jam, want it in none", every, c.id)
			}
		}
	}
}

// One source does not redirect the way ahead into a street of its own.
func TestOneSource_WayAhead(t *testing.T) {
	m := streetWithTraffic(t)
	for k := range 400 {
		at := start.Add(time.Duration(k-400) * 2 * time.Minute)
		c := newCar(m, "lies", -300, street.north, at)
		c.source, c.stored = liars, start
		c.drive(t, 45, 90, 24*time.Second)
		c.drive(t, 45, 0, 12*time.Second)
	}
	creeps := flow{name: "creeps", cars: 30, every: time.Second, from: start, east: 0, north: street.north, kmh: 4,
		metres: 150, source: liars}
	f := honest
	f.cars = 20
	for _, c := range run(t, m, f, creeps)[:f.cars] {
		if c.worst != driving.Normal {
			t.Errorf("%s: got %s, want %s: %s", c.id, c.worst, driving.Normal, c.state.ExplainDriving().Text)
		}
	}
	stillJudged(t, m, "redirected")
}

// One source gets an eighth of the map, and makes room for others.
func TestOneSource_NewStretches(t *testing.T) {
	const most = 64 * 16
	var m road.Map
	m.Bound(most)
	for k := range 4 {
		c := newCar(&m, "lies", 0, 1000*float64(k), start.Add(time.Duration(k)*time.Hour))
		c.source = liars
		c.drive(t, 250, 90, 20*time.Minute)
	}
	if n := m.Len(); n > most/8 || m.Refused.Load() != 0 || m.Doubts(liars)["share"] == 0 {
		t.Errorf("got %d stretches, %d refused, doubts %v; want few, 0, share", n, m.Refused.Load(), m.Doubts(liars))
	}
	for k := range uint32(12) {
		c := newCar(&m, fmt.Sprint("phone", k), 0, -1000*float64(k), start.Add(time.Duration(k)*time.Hour))
		c.source = phones + k
		c.drive(t, 250, 90, 20*time.Minute)
	}
	if n := m.Len(); n < most*9/10 {
		t.Errorf("many sources: got %d stretches, want %d or more", n, most*9/10)
	}
	teach(t, &m, street)
	run(t, &m, honest)
	stillJudged(t, &m, "in a full map")
	if n := m.Len(); n > most {
		t.Errorf("a full map: got %d stretches, want at most %d", n, most)
	}
}

// A verdict on a car of a source needs a number of others.
func TestAsker(t *testing.T) {
	for about, x := range map[string]struct {
		gateway, own int
		phones       int
		used         bool
	}{
		"nobody":                                {},
		"its own cars":                          {own: 5},
		"one car of a gateway":                  {gateway: 1, own: 3},
		"two cars of a gateway":                 {gateway: 2, own: 3},
		"three cars of a gateway":               {gateway: 3, used: true},
		"two sources":                           {phones: 2, own: 1, used: true},
		"one source":                            {phones: 1, own: 3},
		"a car of a gateway and another source": {gateway: 1, phones: 1, own: 1, used: true},
	} {
		m := streetWithTraffic(t)
		var flows []flow
		add := func(name string, cars int, source uint32, crowd bool) {
			for k := range cars {
				f := flow{name: fmt.Sprint(name, k), cars: 1, from: start.Add(time.Duration(k) * time.Second), east: -900,
					north: street.north, degrees: 90, kmh: 40, metres: 900, source: source, crowd: crowd}
				if source == phones {
					f.source += uint32(k)
				}
				flows = append(flows, f)
			}
		}
		add("car", x.gateway, gateway, true)
		add("own", x.own, liars, false)
		add("phone", x.phones, phones, false)
		add("asks", 1, liars, false)
		all := run(t, m, flows...)
		if got := all[len(all)-1].state.Road.Cars != 0; got != x.used {
			t.Errorf("%s: used %t, want %t", about, got, x.used)
		}
	}
}

func TestPhones(t *testing.T) {
	var m road.Map
	f := street
	f.source, f.phones = phones, true
	teach(t, &m, f)
	f.east, f.metres = -1200, 1200
	flows := queue(f, start)
	for i := range flows {
		flows[i].source = phones + 200 + uint32(i)
	}
	run(t, &m, flows...)[0].is(t, driving.Jam)
}

// Readings of up to four weeks ago teach if each car is a voice.
func TestLateCrowd(t *testing.T) {
	for _, x := range []struct {
		crowd bool
		days  int
		want  bool
	}{{true, 27, true}, {true, 29, false}, {false, 2, false}} {
		var m road.Map
		f := street
		f.cars, f.every, f.from, f.stored = 60, time.Minute, start.Add(-time.Duration(x.days)*day), start
		f.source, f.crowd, f.phones = phones, x.crowd, !x.crowd
		run(t, &m, f)
		learned := m.Len() > 0
		if doubted := m.Doubted(road.Old) != 0; learned != x.want || doubted == x.want {
			t.Errorf("%+v: got learned %t, doubted %t; want %t, %t", x, learned, doubted, x.want, !x.want)
		}
	}
}

func TestForget(t *testing.T) {
	m := streetWithTraffic(t)
	all := m.Changed(everyTile)
	if n := m.Forget(road.Around(conditionWithFreeFlow(t, m), 100)); n == 0 || n == m.Len() {
		t.Errorf("Forget: got %d of %d stretches forgotten, want some, not all", n, m.Len())
	}
	m.Forget(road.World)
	changed := m.Changed(everyTile)
	for tile := range all {
		if b, ok := changed[tile]; !ok || len(b) != 0 {
			t.Errorf("tile %s: got %d bytes, stored %t; want 0, true", tile, len(b), ok)
		}
	}
	for name, c := range conditions(m, start) {
		if c != (road.Condition{Stretch: name, Young: true}) {
			t.Errorf("the condition: got %+v, want it forgotten", c)
		}
	}
	teach(t, m, street)
	stillJudged(t, m, "after it was forgotten")
}

func conditionWithFreeFlow(t *testing.T, m *road.Map) driving.Stretch {
	t.Helper()
	for name, c := range conditions(m, start) {
		if c.FreeKmh > 0 {
			return name
		}
	}
	t.Fatal("the free flow: got none, want one of some stretch")
	return 0
}
