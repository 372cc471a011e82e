//go:build !race

package road_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/vehicle"
)

// fleet drives side by side, half of the cars east and half north, again and again.
type fleet struct {
	m    road.Map
	cars []*car
	next int
}

const (
	fleetStep   = 5 * time.Second
	fleetMetres = 5000
)

// newFleet returns a fleet that knows about 2,000 stretches.
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
		f.m.Fold(&c.state, &x, false)
	}
	return f
}

func (c *car) begin(i int) {
	c.latitude, c.longitude = townLatitude, townLongitude
	if aside := 300 * float64(i%28/2); i%2 == 0 {
		c.move(0, aside)
	} else {
		c.move(aside, 0)
	}
}

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
	if max(c.latitude-townLatitude, c.longitude-townLongitude)*metresPerDegree*0.66 > fleetMetres {
		c.begin(i)
		c.at = c.at.Add(2 * time.Minute)
	}
	if position {
		return c, c.fix(t, kmh)
	}
	return c, c.sample(t, kmh)
}

func TestObserveAllocatesNothing(t *testing.T) {
	f := newFleet(t)
	for _, position := range []bool{true, false} {
		if n := testing.AllocsPerRun(5000, func() {
			c, x := f.report(t, position)
			f.m.Fold(&c.state, &x, false)
		}); n != 0 {
			t.Errorf("a sample with a position, %t: got %v allocations, want 0", position, n)
		}
	}
}

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
				if i == len(samples) {
					b.StopTimer()
					for k := range samples {
						samples[k].Time = samples[k].Time.Add(lasts)
					}
					i = 0
					b.StartTimer()
				}
				c := cars[i]
				f.m.Fold(&c.state, &samples[i], false)
				i++
			}
			b.ReportMetric(float64(f.m.Len()), "stretches")
		})
	}
}

func heapBytes() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkStretches reports the memory of one stretch among 10 million.
func BenchmarkStretches(b *testing.B) {
	const n, batch = 10_000_000, 1000
	for b.Loop() {
		before := heapBytes()
		m := new(road.Map)
		cell, from := s2.CellIDFromLatLng(s2.LatLngFromDegrees(townLatitude, townLongitude)).Parent(road.Level), driving.Stretch(0)
		for range n / batch {
			var some []evidence
			for i := range uint64(batch) {
				e := evidence{Stretch: driving.Stretch(uint64(cell) | i%road.Octants), Metres: 70, Seconds: 5, Unix: unix(start)}
				if from != 0 {
					e.From, e.FromMetres, e.FromSeconds = from, 70, 5
				}
				if some, from = append(some, e), e.Stretch; i%road.Octants == road.Octants-1 {
					cell = cell.Next()
				}
			}
			if err := m.Absorb(pack(some...)); err != nil {
				b.Fatalf("Absorb: got %v, want no error", err)
			}
		}
		if m.Len() != n {
			b.Fatalf("got %d stretches, want %d", m.Len(), n)
		}
		b.ReportMetric((heapBytes()-before)/n, "B/stretch")
		runtime.KeepAlive(m)
	}
}
