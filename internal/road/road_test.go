package road

import (
	"fmt"
	"math"
	"testing"
	"time"

	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// start is when the traffic of most tests begins: one and a half minutes into a quarter hour.
var start = vehicle.At(time.Date(2026, 1, 5, 8, 1, 30, 0, time.UTC))

// day is how long before start the map learns the roads.
const day = 24 * time.Hour

// The tests take place around a town. Positions are given in metres east and north of it.
const townLatitude, townLongitude = 48.7, 11.6

// car is a car that drives on a map and reports once every step, or every so often.
type car struct {
	m                   *Map
	id                  vehicle.ID
	state               vehicle.State
	latitude, longitude float64
	at                  vehicle.UnixMilli
	silent              bool // sends no position
	source              uint32
	crowd               bool
	stored              vehicle.UnixMilli // when the log stores what it sends; 0: at once
	// claims is the speed that the car reports instead of its true speed: nil for the truth, NaN for
	// none. worst is the worst driving state that the car's verdicts had so far.
	claims *float64
	worst  vehicle.DrivingState
	// compass is the heading that the receiver sends, if any.
	compass *float64
	// every is the time between two reports, step if it is zero. The next report is due at that time.
	every time.Duration
	due   vehicle.UnixMilli
}

const step = 2 * time.Second

func newCar(m *Map, id string, east, north float64, at vehicle.UnixMilli) *car {
	c := newCarAt(m, id, townLatitude, townLongitude, at)
	c.move(east, north)
	return c
}

func newCarAt(m *Map, id string, latitude, longitude float64, at vehicle.UnixMilli) *car {
	return &car{m: m, id: vehicle.ID(id), latitude: latitude, longitude: longitude, at: at}
}

// move moves the car by a number of metres, across a pole or the date line if need be.
func (c *car) move(east, north float64) {
	const perDegree = math.Pi / 180 * earthMetres
	c.latitude += north / perDegree
	c.longitude = math.Remainder(c.longitude+east/perDegree/max(0.01, math.Cos(c.latitude*math.Pi/180)), 360)
}

// drive moves the car at a speed and a heading, and reports when a report is due.
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

// sample returns a report with a speed, unless it is NaN, and no position.
func (c *car) sample(t testing.TB, kmh float64) vehicle.Sample {
	t.Helper()
	x := vehicle.Sample{Vehicle: c.id, Time: c.at, Source: c.source, Crowd: c.crowd, Stored: c.stored}
	if !math.IsNaN(kmh) {
		set(t, &x, vehicle.Speed, kmh)
	}
	return x
}

// fix returns a report with a speed and the car's position.
func (c *car) fix(t testing.TB, kmh float64) vehicle.Sample {
	t.Helper()
	x := c.sample(t, kmh)
	set(t, &x, vehicle.CurrentLatitude, c.latitude)
	set(t, &x, vehicle.CurrentLongitude, c.longitude)
	if c.compass != nil {
		set(t, &x, vehicle.CurrentHeading, *c.compass)
	}
	return x
}

func (c *car) report(x vehicle.Sample) {
	c.state = c.m.Observe(c.state, x)
	c.worst = max(c.worst, c.state.Driving().State)
}

func set(t interface {
	Helper()
	Fatal(...any)
}, x *vehicle.Sample, g vehicle.Signal, v float64) {
	t.Helper()
	if err := x.Set(g, v); err != nil {
		t.Fatal(err)
	}
}

// is checks the car's driving state. It fails the test unless the state is want and was concluded
// from what other cars show.
func (c *car) is(t *testing.T, want vehicle.DrivingState) {
	t.Helper()
	if got := c.state.Driving().State; got != want || c.state.Traffic.Source != vehicle.FreeFlowOfRoad ||
		c.state.Road.Cars == 0 {
		t.Errorf("%s is in %s, want %s: %s", c.id, got, want, c.state.ExplainDriving().Text)
	}
}

// flow is a stream of cars along a straight road.
type flow struct {
	name        string
	cars        int
	every       time.Duration // between two cars
	from        vehicle.UnixMilli
	east, north float64 // where each car begins
	degrees     float64
	kmh, metres float64
	claims      *float64
	compass     *float64
	source      uint32 // of all cars; 0: none
	phones      bool   // the k-th car is of the source with the k-th number from there
	crowd       bool
	stored      vehicle.UnixMilli
	reports     []time.Duration // the cars' intervals in turn; each step if there are none
}

// run lets all flows drive at the same time. It returns the cars, in the order of the
// flows.
func run(t testing.TB, m *Map, flows ...flow) (all []*car) {
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

// teach lets a flow drive in light traffic, for an hour and a half on the day before start, so that
// the map learns its road.
func teach(t testing.TB, m *Map, f flow) {
	t.Helper()
	f.cars, f.every, f.from = 60, 90*time.Second, start.Add(-day)
	run(t, m, f)
}

// queue returns a queue that creeps along a part of a road: one flow of a single car every 15 m.
func queue(f flow, from vehicle.UnixMilli) (all []flow) {
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

// The roads of the tests: both directions of a motorway, 15 m apart, a street beside the motorway,
// and a street that crosses it.
var (
	eastbound = flow{name: "east", east: -3000, degrees: 90, kmh: 110, metres: 6000}
	westbound = flow{name: "west", east: 3000, north: 15, degrees: 270, kmh: 110, metres: 6000}
	street    = flow{name: "street", east: -2000, north: -70, degrees: 90, kmh: 45, metres: 3000}
	crossing  = flow{name: "crossing", north: -2000, degrees: 0, kmh: 50, metres: 3500}
)

// jam returns a map with a jam on the eastbound lanes of the motorway, which begins 1 km
// before the crossing.
func jam(t testing.TB) *Map {
	t.Helper()
	m := new(Map)
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

// TestDirections checks that a jam on one direction of a motorway is found there, but not in the
// other direction, on a street 70 m beside the motorway or on a street that crosses it.
func TestDirections(t *testing.T) {
	m := jam(t)
	now := start.Add(2 * time.Minute)
	for _, c := range []struct {
		name                      string
		east, north, degrees, kmh float64
		want                      vehicle.DrivingState
	}{
		{"jammed", -700, 0, 90, 12, vehicle.TrafficJam},
		{"opposite", 900, 15, 270, 105, vehicle.NormalDriving},
		{"beside", -900, -70, 90, 44, vehicle.NormalDriving},
		{"across", 0, -500, 0, 48, vehicle.NormalDriving},
	} {
		x := newCar(m, c.name, c.east, c.north, now)
		x.drive(t, c.kmh, c.degrees, time.Minute)
		x.is(t, c.want)
	}
}

// TestJamIsSaidInTime checks that the verdict of a car that drives into a jam is "jam"
// within 90 s.
func TestJamIsSaidInTime(t *testing.T) {
	m := jam(t)
	x := newCar(m, "comes", -2600, 0, start.Add(90*time.Second))
	x.drive(t, 110, 90, 40*time.Second) // to the end of the jam, at about -1370 m
	x.drive(t, 12, 90, 90*time.Second)
	x.is(t, vehicle.TrafficJam)
}

// TestTunnel_OwnSpeeds checks the source of the free flow for a car in a tunnel, which sends no
// positions. In the tunnel, the source must be the car's own speeds; after the tunnel, it must be
// the road again.
func TestTunnel_OwnSpeeds(t *testing.T) {
	m := jam(t)
	x := newCar(m, "tunnel", 900, 15, start.Add(100*time.Second))
	x.drive(t, 100, 270, 20*time.Second)
	x.is(t, vehicle.NormalDriving)
	x.silent = true
	x.drive(t, 100, 270, 80*time.Second)
	if s := x.state.Traffic.Source; s != vehicle.FreeFlowShown {
		t.Errorf("in the tunnel the free flow is %s", s)
	}
	x.silent = false
	x.drive(t, 100, 270, 20*time.Second)
	if s := x.state.Traffic.Source; s != vehicle.FreeFlowOfRoad {
		t.Errorf("behind the tunnel the free flow is %s", s)
	}
}

// TestStandingCars checks that one car that reports a standstill for one to nine minutes makes no
// jam on a street where other cars drive. Such a car may be parked at the kerb with its engine on,
// be a bus at its stop, or lie.
func TestStandingCars(t *testing.T) {
	testkit.Unraced(t)
	for _, standing := range []time.Duration{time.Minute, 5 * time.Minute, 9 * time.Minute} {
		var m Map
		teach(t, &m, street)
		f := street
		f.cars, f.every, f.from = 60, 20*time.Second, start
		run(t, &m, f, flow{name: "waiting", cars: 1, from: start, east: -420, north: -70, degrees: 90, kmh: 0.01,
			metres: 0.01 / 3.6 * standing.Seconds()})
		x := newCar(&m, "passes", -900, -70, start.Add(standing))
		x.drive(t, 45, 90, 50*time.Second)
		x.is(t, vehicle.NormalDriving)
	}
}

// TestStandingInThinTraffic checks that one car that is stationary on the hard shoulder of a
// motorway, or moves back and forth there, does not put the cars that pass into a jam, even if a
// car passes only every 90 s.
func TestStandingInThinTraffic(t *testing.T) {
	for _, kmh := range []float64{0.01, 10} {
		var m Map
		teach(t, &m, eastbound)
		f := eastbound
		f.cars, f.every, f.from = 10, 90*time.Second, start
		shoulder := newCar(&m, "waiting", 0, 0, start)
		shoulder.drive(t, 60, 90, 4*time.Second)
		for i := range 10 { // between two of the other cars
			f.cars, f.from, f.name = 1, start.Add(time.Duration(i)*90*time.Second), fmt.Sprintf("thin%d", i)
			for _, c := range run(t, &m, f) {
				if got := c.state.Driving().State; got != vehicle.NormalDriving {
					t.Errorf("%s is in %s: %s", c.id, got, c.state.ExplainDriving().Text)
				}
			}
			for k := range 4 {
				shoulder.at = max(shoulder.at, f.from.Add(time.Duration(20*k)*time.Second))
				shoulder.drive(t, kmh, 90+180*float64(k%2), 20*time.Second)
			}
		}
	}
}

// TestFullMap_KeepsWhatItKnows checks that a full map refuses and counts evidence and stored
// profiles of unknown stretches, and that the cars on known stretches are still counted.
func TestFullMap_KeepsWhatItKnows(t *testing.T) {
	var known, other Map
	for _, at := range []vehicle.UnixMilli{start, start.Add(time.Hour)} { // the cars of the second time end the quarter hours of the first
		for i := range 4 {
			newCar(&known, fmt.Sprint("car", i), 0, 0, at).drive(t, 50, 90, 2*time.Minute)
			newCar(&other, fmt.Sprint("car", i), 0, 50_000, at).drive(t, 50, 90, 10*time.Minute)
		}
	}
	before := known.Len()
	known.Bound(shards) // one stretch a shard, so that shards with one or more are full
	stranger := newCar(&known, "stranger", 0, 20_000, start.Add(time.Hour))
	stranger.drive(t, 50, 90, 10*time.Minute)
	refused := known.Refused()
	if refused == 0 {
		t.Error("nothing was refused")
	}
	for tile, packed := range other.Changed(func(Tile) bool { return true }) {
		if err := known.Load(tile, packed); err != nil {
			t.Fatal(err)
		}
	}
	if known.Refused() == refused {
		t.Error("no stored profile was refused")
	}
	if got := known.Len(); got > before+shards {
		t.Errorf("%d stretches, before %d and one a shard", got, before)
	}
	last := newCar(&known, "last", 0, 0, start.Add(time.Hour+time.Minute))
	last.drive(t, 50, 90, time.Minute)
	if last.state.Road.Cars == 0 {
		t.Error("the known road does not count any more")
	}
}
