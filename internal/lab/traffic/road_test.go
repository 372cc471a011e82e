package traffic

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Two seconds after yellow, every car can have stopped.
func TestRoad_RedLight(t *testing.T) {
	k, random, now := &kinds[1], rand.New(rand.NewPCG(1, 1)), time.Duration(0)
	r := newRoad(k, 2000)
	for i := range 30 {
		r.cars = append(r.cars, &car{road: r, driver: k.like(random), meter: r.lengthMeter * float64(i) / 30, mps: 3})
	}
	cycle, red := r.lights.cycle, r.lights.red
	for range 20 * 60 * 5 {
		before := make([]float64, len(r.cars))
		for i, c := range r.cars {
			before[i] = c.meter
		}
		now += Step
		r.step(now)
		for i, c := range r.cars {
			light := math.Floor(before[i]/r.lightMeter) + 1
			if c.meter >= before[i] && c.meter < light*r.lightMeter {
				continue // between two lights
			}
			wave := time.Duration(light * r.lightMeter / (waveShare * r.desiredMps) * float64(time.Second))
			in := (now - wave + 10*cycle) % cycle
			if since := in - (cycle - red); since > yellow+2*time.Second {
				t.Fatalf("a car passed a light that had been red for %s, at %.1f m/s", since-yellow, c.mps)
			}
		}
	}
}
