package road_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// start is one and a half minutes into a quarter hour.
var start = signal.At(time.Date(2026, 1, 5, 8, 1, 30, 0, time.UTC))

const day = 24 * time.Hour

// Positions are in metres east and north of a town.
const townLatitude, townLongitude, metresPerDegree = 48.7, 11.6, math.Pi / 180 * 6_371_008.8

type car struct {
	m                   *road.Map
	id                  vehicle.ID
	state               vehicle.State
	latitude, longitude float64
	at                  signal.UnixMilli
	silent              bool
	source              uint32
	crowd               bool
	stored              signal.UnixMilli
	// claims is the speed that the car reports, NaN for none; if nil, the true one. worst is its
	// worst verdict so far.
	claims *float64
	worst  driving.State
	// if any, the heading that the receiver sends
	compass *float64
	every   time.Duration
	due     signal.UnixMilli
}

const step = 2 * time.Second

// gateway is trusted, liars may lie, and from phones on, each source has one car.
const gateway, liars, phones = 1, 7, 100

func newCar(m *road.Map, id string, east, north float64, at signal.UnixMilli) *car {
	c := newCarAt(m, id, townLatitude, townLongitude, at)
	c.move(east, north)
	return c
}

func newCarAt(m *road.Map, id string, latitude, longitude float64, at signal.UnixMilli) *car {
	return &car{m: m, id: vehicle.ID(id), latitude: latitude, longitude: longitude, at: at}
}

// move may cross a pole or the date line.
func (c *car) move(east, north float64) {
	c.latitude += north / metresPerDegree
	c.longitude = math.Remainder(c.longitude+east/metresPerDegree/max(0.01, math.Cos(c.latitude*math.Pi/180)), 360)
}

func (c *car) drive(t testing.TB, kmh, degrees float64, lasts time.Duration) {
	t.Helper()
	says := kmh
	if c.claims != nil {
		says = *c.claims
	}
	tick := step
	if c.every != 0 {
		tick = time.Second
	}
	for range int(lasts / tick) {
		metres := kmh / 3.6 * tick.Seconds()
		c.move(metres*math.Sin(degrees*math.Pi/180), metres*math.Cos(degrees*math.Pi/180))
		if c.at = c.at.Add(tick); c.at < c.due {
			continue
		}
		c.due = c.at.Add(c.every)
		x := c.sample(t, says)
		if !c.silent {
			x = c.fix(t, says)
		}
		c.report(x)
	}
}

func (c *car) sample(t testing.TB, kmh float64) vehicle.Sample {
	t.Helper()
	x := vehicle.Sample{Vehicle: c.id, Time: c.at, Source: c.source, Crowd: c.crowd, Stored: c.stored}
	if !math.IsNaN(kmh) {
		set(t, &x, signal.Speed, kmh)
	}
	return x
}

func (c *car) fix(t testing.TB, kmh float64) vehicle.Sample {
	t.Helper()
	x := c.sample(t, kmh)
	set(t, &x, signal.CurrentLatitude, c.latitude)
	set(t, &x, signal.CurrentLongitude, c.longitude)
	if c.compass != nil {
		set(t, &x, signal.CurrentHeading, *c.compass)
	}
	return x
}

func (c *car) report(x vehicle.Sample) {
	c.m.Fold(&c.state, &x, false)
	c.worst = max(c.worst, c.state.Driving().State)
}

func set(t interface {
	Helper()
	Fatal(...any)
}, x *vehicle.Sample, g signal.Signal, v float64) {
	t.Helper()
	if err := x.Set(g, v); err != nil {
		t.Fatal("Set of ", g, ": got ", err, ", want no error")
	}
}

// is checks also that other cars were the reason.
func (c *car) is(t *testing.T, want driving.State) {
	t.Helper()
	if got := c.state.Driving().State; got != want || c.state.Traffic.Source != driving.FreeFlowOfRoad ||
		c.state.Road.Cars == 0 {
		t.Errorf("%s is in %s, want %s: %s", c.id, got, want, c.state.ExplainDriving().Text)
	}
}

type flow struct {
	name        string
	cars        int
	every       time.Duration // between two cars
	from        signal.UnixMilli
	east, north float64
	degrees     float64
	kmh, metres float64
	claims      *float64
	compass     *float64
	source      uint32
	phones      bool // the k-th car has the k-th number from there
	crowd       bool
	stored      signal.UnixMilli
	reports     []time.Duration // in turn; each step if there are none
}

func run(t testing.TB, m *road.Map, flows ...flow) (all []*car) {
	t.Helper()
	type driving struct {
		*car
		f    *flow
		left float64 // m
	}
	var cars []driving
	at, end := flows[0].from, flows[0].from
	for i := range flows {
		f := &flows[i]
		for k := range f.cars {
			begins := f.from.Add(time.Duration(k) * f.every)
			c := newCar(m, fmt.Sprintf("%s%03d", f.name, k), f.east, f.north, begins)
			c.claims, c.compass = f.claims, f.compass
			c.source, c.crowd, c.stored = f.source, f.crowd, f.stored
			if f.phones {
				c.source += uint32(k)
			}
			if n := len(f.reports); n > 0 {
				c.every = f.reports[k%n]
				c.due = begins.Add(time.Duration(17*k) * time.Second % c.every)
			}
			all = append(all, c)
			cars = append(cars, driving{c, f, f.metres})
			at, end = min(at, begins), max(end, begins.Add(time.Duration(f.metres/(f.kmh/3.6)*float64(time.Second))))
		}
	}
	for ; at < end; at = at.Add(step) {
		for i := range cars {
			if c := &cars[i]; c.at <= at && c.left > 0 {
				c.drive(t, c.f.kmh, c.f.degrees, step)
				c.left -= c.f.kmh / 3.6 * step.Seconds()
			}
		}
	}
	return all
}

// A flow drives on the day before start, so that the map learns its road.
func teach(t testing.TB, m *road.Map, f flow) {
	t.Helper()
	f.cars, f.every, f.from = 60, 90*time.Second, start.Add(-day)
	run(t, m, f)
}

// freeKmh lets a car drive in the middle of the road.
func freeKmh(t *testing.T, m *road.Map, f flow, at signal.UnixMilli) float64 {
	t.Helper()
	f.name, f.cars, f.from, f.metres = fmt.Sprintf("asks%d ", at), 1, at, min(f.metres, 900)
	a := run(t, m, f)[0].state.Road
	if a.FreeKmh == 0 {
		t.Fatalf("%s: got nothing known of its road, want a free flow", f.name)
	}
	return float64(a.FreeKmh)
}

func conditions(m *road.Map, at signal.UnixMilli) map[driving.Stretch]road.Condition {
	all := make(map[driving.Stretch]road.Condition)
	m.ConditionsIn(road.World, at, func(c road.Condition) { all[c.Stretch] = c })
	return all
}

// queue creeps along a road, a car every 15 m.
func queue(f flow, from signal.UnixMilli) (all []flow) {
	for i := range int(f.metres / 15) {
		behind := 15 * float64(i)
		all = append(all, flow{
			name: fmt.Sprintf("%sq%03dx", f.name, i), cars: 1, from: from, degrees: f.degrees, kmh: 12, metres: 400,
			east:  f.east + behind*math.Sin(f.degrees*math.Pi/180),
			north: f.north + behind*math.Cos(f.degrees*math.Pi/180), source: f.source, crowd: f.crowd,
		})
	}
	return all
}

// Both directions of a motorway, 15 m apart, a street beside it, and one that crosses it.
var (
	eastbound = flow{name: "east", east: -3000, degrees: 90, kmh: 110, metres: 6000}
	westbound = flow{name: "west", east: 3000, north: 15, degrees: 270, kmh: 110, metres: 6000}
	street    = flow{name: "street", east: -2000, north: -70, degrees: 90, kmh: 45, metres: 3000}
	crossing  = flow{name: "crossing", north: -2000, degrees: 0, kmh: 50, metres: 3500}
)

// jam is on the eastbound lanes, from 1 km before the crossing.
func jam(t testing.TB) *road.Map {
	t.Helper()
	m := new(road.Map)
	for _, f := range []flow{eastbound, westbound, street, crossing} {
		teach(t, m, f)
	}
	waiting := eastbound
	waiting.east, waiting.metres = -1000, 1500
	flows := queue(waiting, start)
	for _, f := range []flow{westbound, street, crossing} {
		f.cars, f.every, f.from = 12, 10*time.Second, start
		flows = append(flows, f)
	}
	run(t, m, flows...)
	return m
}

// A jam is found in its direction only, and not on the street 70 m beside.
func TestDirections(t *testing.T) {
	m := jam(t)
	now := start.Add(2 * time.Minute)
	for _, c := range []struct {
		name                      string
		east, north, degrees, kmh float64
		want                      driving.State
	}{
		{"jammed", -700, 0, 90, 12, driving.Jam},
		{"opposite", 900, 15, 270, 105, driving.Normal},
		{"beside", -900, -70, 90, 44, driving.Normal},
		{"across", 0, -500, 0, 48, driving.Normal},
	} {
		x := newCar(m, c.name, c.east, c.north, now)
		x.drive(t, c.kmh, c.degrees, time.Minute)
		x.is(t, c.want)
	}
}

// Within 90 s.
func TestJamIsSaidInTime(t *testing.T) {
	m := jam(t)
	x := newCar(m, "comes", -2600, 0, start.Add(90*time.Second))
	x.drive(t, 110, 90, 40*time.Second) // to the end of the jam, at about -1370 m
	x.drive(t, 12, 90, 90*time.Second)
	x.is(t, driving.Jam)
}

// In a tunnel, the free flow is that of the car's own speeds.
func TestTunnel_OwnSpeeds(t *testing.T) {
	m := jam(t)
	x := newCar(m, "tunnel", 900, 15, start.Add(100*time.Second))
	x.drive(t, 100, 270, 20*time.Second)
	x.is(t, driving.Normal)
	x.silent = true
	x.drive(t, 100, 270, 80*time.Second)
	if s := x.state.Traffic.Source; s != driving.FreeFlowShown {
		t.Errorf("the free flow in the tunnel: got %s, want %s", s, driving.FreeFlowShown)
	}
	x.silent = false
	x.drive(t, 100, 270, 20*time.Second)
	if s := x.state.Traffic.Source; s != driving.FreeFlowOfRoad {
		t.Errorf("the free flow behind the tunnel: got %s, want %s", s, driving.FreeFlowOfRoad)
	}
}

// A car on the hard shoulder, stationary or moving back and forth, makes no jam, even if a car
// passes only every 90 s.
func TestStandingInThinTraffic(t *testing.T) {
	for _, kmh := range []float64{0.01, 10} {
		var m road.Map
		teach(t, &m, eastbound)
		f := eastbound
		f.cars, f.every, f.from = 10, 90*time.Second, start
		shoulder := newCar(&m, "waiting", 0, 0, start)
		shoulder.drive(t, 60, 90, 4*time.Second)
		for i := range 10 {
			f.cars, f.from, f.name = 1, start.Add(time.Duration(i)*90*time.Second), fmt.Sprintf("thin%d", i)
			for _, c := range run(t, &m, f) {
				if got := c.state.Driving().State; got != driving.Normal {
					t.Errorf("%s: got %s, want %s: %s", c.id, got, driving.Normal, c.state.ExplainDriving().Text)
				}
			}
			for k := range 4 {
				shoulder.at = max(shoulder.at, f.from.Add(time.Duration(20*k)*time.Second))
				shoulder.drive(t, kmh, 90+180*float64(k%2), 20*time.Second)
			}
		}
	}
}

func TestFullMap_KeepsWhatItKnows(t *testing.T) {
	var known, other road.Map
	for _, at := range []signal.UnixMilli{start, start.Add(time.Hour)} { // the second time ends the quarter hours of the first
		for i := range 4 {
			newCar(&known, fmt.Sprint("car", i), 0, 0, at).drive(t, 50, 90, 2*time.Minute)
			newCar(&other, fmt.Sprint("car", i), 0, 50_000, at).drive(t, 50, 90, 10*time.Minute)
		}
	}
	before := known.Len()
	known.Bound(64) // one stretch a shard, so that shards with one or more are full
	stranger := newCar(&known, "stranger", 0, 20_000, start.Add(time.Hour))
	stranger.drive(t, 50, 90, 10*time.Minute)
	refused := known.Refused.Load()
	if refused == 0 {
		t.Error("what a full map refuses: got nothing, want something")
	}
	for tile, packed := range other.Changed(func(road.Tile) bool { return true }) {
		if err := known.Load(tile, packed); err != nil {
			t.Fatalf("Load: got %v, want no error", err)
		}
	}
	if known.Refused.Load() == refused {
		t.Error("refused stored profiles: got none, want some")
	}
	if got := known.Len(); got > before+64 {
		t.Errorf("the full map: got %d stretches, want at most %d", got, before+64)
	}
	last := newCar(&known, "last", 0, 0, start.Add(time.Hour+time.Minute))
	last.drive(t, 50, 90, time.Minute)
	if last.state.Road.Cars == 0 {
		t.Error("the cars of the known road: got 0, want some")
	}
}
