package traffic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/vehicle"
)

// settled returns a road with perKm cars a kilometre that have driven for settle, and the time.
func settled(k *kind, km, perKm float64, settle time.Duration) (*road, time.Duration) {
	random := rand.New(rand.NewPCG(1, 1))
	r := newRoad(k, 1000*km)
	r.light = newLight(k, r.lengthMeter)
	n := int(km * perKm)
	for i := range n {
		r.cars = append(r.cars, &car{road: r, driver: k.like(random), meter: r.lengthMeter * float64(i) / float64(n),
			mps: 3})
	}
	now := time.Duration(0)
	for now < settle {
		now += Step
		r.step(now)
	}
	return r, now
}

// TestLightTraffic: with other drivers, a road at its emptiest is as fast as measured, and because
// of the green wave, at least 60 % of the limit, on a motorway 85 %.
func TestLightTraffic(t *testing.T) {
	for i, least := range []float64{0.85, 0.6, 0.6} {
		k := &kinds[i]
		r, now := settled(k, 3.1, k.fewestPerKm, 10*time.Minute)
		if share := r.light.meanMps * 3.6 / k.limitKmh; share < least || share > 1 {
			t.Errorf("at %.0f km/h: light traffic moves at %.2f of the limit", k.limitKmh, share)
		}
		var shares []float64
		for range 30 {
			for end := now + time.Minute; now < end; {
				now += Step
				r.step(now)
			}
			for _, c := range r.cars {
				state, share := r.state(c.meter)
				shares = append(shares, share)
				if state != vehicle.NormalDriving && share < 0.6 {
					t.Errorf("at %.0f km/h, %.0f m, it is %s: %.2f", k.limitKmh, c.meter, state, share)
				}
			}
		}
		slices.Sort(shares)
		if median := shares[len(shares)/2]; median < 0.9 || median > 1.1 || shares[len(shares)/50] < normalAbove {
			t.Errorf("at %.0f km/h: median share %.2f, of 1 in 50 below %.2f", k.limitKmh, median,
				shares[len(shares)/50])
		}
	}
}

// TestRoad_JamWave: stop-and-go waves form by themselves and move upstream at 10 to 25 km/h, as on
// motorways all over the world.
func TestRoad_JamWave(t *testing.T) {
	const km, cellMeter = 5, 50
	r, now := settled(&kinds[0], km, 40, 30*time.Minute)
	const cells = km * 1000 / cellMeter
	const every, seconds = 10, 600 // the speeds are recorded every 2 s
	var looks [][cells]float64
	standing, driving := 0, 0
	for step := range seconds * 5 {
		now += Step
		r.step(now)
		if step%every != 0 {
			continue
		}
		var sum, n [cells]float64
		for _, c := range r.cars {
			i := int(c.meter / cellMeter)
			sum[i], n[i] = sum[i]+c.mps, n[i]+1
			switch {
			case c.mps < 10/3.6:
				standing++
			case c.mps > 50/3.6:
				driving++
			}
		}
		look := [cells]float64{}
		for i := range look {
			look[i] = r.desiredMps // no car there
			if n[i] > 0 {
				look[i] = sum[i] / n[i]
			}
		}
		looks = append(looks, look)
	}
	all := len(looks) * len(r.cars)
	if standing < all/20 || driving < all/20 {
		t.Errorf("no stop and go: of %d looks at cars %d stood nearly and %d drove", all, standing, driving)
	}

	// The shift of a minute ago that is most similar to the present speeds.
	const ago = 30
	best, shift := math.Inf(1), 0
	for k := -12; k <= 12; k++ {
		var differs float64
		for i := ago; i < len(looks); i++ {
			for c := range cells {
				differs += math.Abs(looks[i][(c+k+cells)%cells] - looks[i-ago][c])
			}
		}
		if differs < best {
			best, shift = differs, k
		}
	}
	kmh := float64(shift) * cellMeter / (ago * 2) * 3.6
	t.Logf("waves move at %.0f km/h", kmh)
	if kmh < -25 || kmh > -10 {
		t.Errorf("waves move at %.0f km/h, want -25 to -10", kmh)
	}
	jam := 0
	for _, c := range r.cars {
		if c.learnTruth(now); c.truth == vehicle.TrafficJam {
			jam++
		}
	}
	if jam == 0 || jam == len(r.cars) {
		t.Errorf("%d of %d cars are in a jam", jam, len(r.cars))
	}
}

// TestRoad_RedLight: two seconds after yellow, every car can have stopped.
func TestRoad_RedLight(t *testing.T) {
	r, now := settled(&kinds[1], 2, 15, 0)
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
			if c.meter > before[i] && c.meter < light*r.lightMeter {
				continue // between two lights
			}
			if c.meter == before[i] {
				continue
			}
			wave := time.Duration(light * r.lightMeter / (waveShare * r.desiredMps) * float64(time.Second))
			in := (now - wave + 10*cycle) % cycle
			if since := in - (cycle - red); since > yellow+2*time.Second {
				t.Fatalf("a car passed a light that had been red for %s, at %.1f m/s", since-yellow, c.mps)
			}
		}
	}
}
