package road

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// fleet is a number of cars on roads that lie side by side. Half of the roads lead east and half
// north. Each car reports every 5 s, drives to the end of its road and begins again.
type fleet struct {
	m    Map
	cars []*car
	next int
}

const (
	fleetStep   = 5 * time.Second
	fleetMetres = 5000 // length of a road
)

// newFleet returns a fleet that has driven for half an hour and knows about 2,000
// stretches.
func newFleet(t testing.TB) *fleet {
	t.Helper()
	f := new(fleet)
	for i := range 200 {
		c := newCar(&f.m, fmt.Sprintf("car%d", i), 0, 0, start)
		c.begin(i)
		f.cars = append(f.cars, c)
	}
	for range len(f.cars) * int(30*time.Minute/fleetStep) {
		c, x := f.report(t, true)
		c.state = f.m.Observe(c.state, x)
	}
	return f
}

// begin puts the i-th car at the beginning of its road.
func (c *car) begin(i int) {
	c.latitude, c.longitude = townLatitude, townLongitude
	if road := 300 * float64(i%28/2); i%2 == 0 {
		c.move(0, road)
	} else {
		c.move(road, 0)
	}
}

// report moves the next car, and returns the car and its report. If position is false, the report
// has a speed only.
func (f *fleet) report(t testing.TB, position bool) (*car, vehicle.Sample) {
	i := f.next % len(f.cars)
	f.next++
	c := f.cars[i]
	kmh := 30 + float64(i%40)
	metres := kmh / 3.6 * fleetStep.Seconds()
	if c.at = c.at.Add(fleetStep); i%2 == 0 {
		c.move(metres, 0)
	} else {
		c.move(0, metres)
	}
	const perDegree = math.Pi / 180 * earthMetres
	if max(c.latitude-townLatitude, c.longitude-townLongitude)*perDegree*0.66 > fleetMetres {
		c.begin(i)
		c.at = c.at.Add(2 * time.Minute)
	}
	if position {
		return c, c.fix(t, kmh)
	}
	return c, c.sample(t, kmh)
}

// TestObserveAllocatesNothing checks that Observe allocates no memory for a car on a known road,
// whether or not its sample has a position.
func TestObserveAllocatesNothing(t *testing.T) {
	testkit.Unraced(t)
	f := newFleet(t)
	for _, position := range []bool{true, false} {
		if n := testing.AllocsPerRun(5000, func() {
			c, x := f.report(t, position)
			c.state = f.m.Observe(c.state, x)
		}); n != 0 {
			t.Errorf("%v allocations a sample, with a position: %t", n, position)
		}
	}
}

// BenchmarkObserve folds reports of a fleet that knows its roads. The reports are prepared
// beforehand.
func BenchmarkObserve(b *testing.B) {
	for _, position := range []bool{true, false} {
		name := "without position"
		if position {
			name = "with position"
		}
		b.Run(name, func(b *testing.B) {
			f := newFleet(b)
			const rounds = 500
			cars, samples := make([]*car, rounds*len(f.cars)), make([]vehicle.Sample, rounds*len(f.cars))
			for i := range samples {
				cars[i], samples[i] = f.report(b, position)
			}
			lasts := samples[len(samples)-1].Time.Sub(samples[0].Time) + time.Hour
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i == len(samples) { // use the same samples again, with later times
					b.StopTimer()
					for k := range samples {
						samples[k].Time = samples[k].Time.Add(lasts)
					}
					i = 0
					b.StartTimer()
				}
				c := cars[i]
				c.state = f.m.Observe(c.state, samples[i])
				i++
			}
			b.ReportMetric(float64(f.m.Len()), "stretches")
		})
	}
}

// heapBytes returns the heap in use after a collection.
func heapBytes() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// cells yields n neighbouring stretches.
func cells(n int, yield func(vehicle.Stretch)) {
	c := s2.CellIDFromLatLng(s2.LatLngFromDegrees(townLatitude, townLongitude)).Parent(Level)
	for i := range n {
		yield(vehicle.Stretch(uint64(c) | uint64(i%Octants)))
		if i%Octants == Octants-1 {
			c = c.Next()
		}
	}
}

// BenchmarkStretches reports the memory of one stretch among 10 million.
func BenchmarkStretches(b *testing.B) {
	const n = 10_000_000
	for b.Loop() {
		before := heapBytes()
		m := new(Map)
		var from vehicle.Stretch
		cells(n, func(s vehicle.Stretch) {
			e := evidence{Stretch: s, Metres: 70, Seconds: 5, Unix: unixOf(start)}
			if from != 0 {
				e.From, e.FromMetres, e.FromSeconds = from, 70, 5
			}
			m.apply(&e, nil)
			from = s
		})
		if m.Len() != n {
			b.Fatalf("%d stretches", m.Len())
		}
		b.ReportMetric((heapBytes()-before)/n, "B/stretch")
		runtime.KeepAlive(m)
	}
}
