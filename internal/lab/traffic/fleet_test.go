//go:build !race

package traffic

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// No car collides, drives backwards or is lost, at any time of the tide.
func TestFleetHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New(Config{
			Vehicles:  rapid.IntRange(1, 150).Draw(t, "vehicles"),
			PerSecond: 0.1,
			Seed:      rapid.Uint64().Draw(t, "seed"),
		})
		f.now = time.Duration(rapid.IntRange(0, 1800).Draw(t, "begin")) * time.Second
		f.schedule()
		for range rapid.IntRange(300, 3000).Draw(t, "steps") {
			f.Step(func(int, time.Duration, signal.Readings) {})
			if wrong := f.wrong(); wrong != "" {
				t.Fatalf("the traffic: got %s, want nothing wrong", wrong)
			}
		}
	})
}

func (f *Fleet) wrong() string {
	found := make(map[*car]bool)
	for _, r := range f.roads {
		var around float64
		for i, c := range r.cars {
			gap, _ := r.gap(i)
			if gap < 0 {
				return fmt.Sprintf("a collision: %.2f m", gap)
			}
			around += gap + carLength
			if found[c] || c.place != onRoad || c.road != r {
				return "a car on a road is elsewhere too"
			}
			found[c] = true
			if math.IsNaN(c.mps) || c.mps < 0 || c.mps > 1.2*max(c.desiredMps, 40) || c.meter < 0 ||
				c.meter >= r.lengthMeter {
				return fmt.Sprintf("%.2f m/s at %.2f m", c.mps, c.meter)
			}
		}
		if len(r.cars) > 0 && math.Abs(around-r.lengthMeter) > 1e-6 {
			return fmt.Sprintf("the cars and gaps of a road of %.1f m are %.1f m long in total", r.lengthMeter, around)
		}
	}
	idle := make(map[*car]bool)
	for _, c := range f.idle {
		if idle[c] || c.place != sideStreet || c.road != nil || c.parks {
			return "a car waits for a road and has one, or waits twice"
		}
		idle[c] = true
	}
	for _, c := range f.cars {
		switch {
		case (c.place == onRoad) != found[c]:
			return "a car is lost"
		case c.place == sideStreet && c.road == nil && !c.parks && !idle[c]:
			return "a car drives in side streets for ever"
		case c.place == parked && (c.mps != 0 || c.road != nil):
			return "a parked car moves"
		}
	}
	return ""
}

func drive(t *testing.T, c Config, d time.Duration) (readings, truths uint64) {
	f := New(c)
	f.Settle(time.Minute)
	said, was := fnv.New64a(), fnv.New64a()
	for f.Now() < d {
		f.Step(func(i int, at time.Duration, r signal.Readings) {
			fmt.Fprint(said, i, at, r)
		})
		for i := range c.Vehicles {
			fmt.Fprint(was, f.Truth(i))
		}
	}
	return said.Sum64(), was.Sum64()
}

func TestFleet_SameSeed(t *testing.T) {
	c := Config{Vehicles: 60, PerSecond: 1, Seed: 7}
	readings, truths := drive(t, c, 2*time.Minute)
	if r, tr := drive(t, c, 2*time.Minute); r != readings || tr != truths {
		t.Error("the same seed: got another drive, want the same")
	}
	c.PerSecond = 0.2
	if r, tr := drive(t, c, 2*time.Minute); r == readings || tr != truths {
		t.Error("reporting less often: got other traffic, or the same readings, want the opposite")
	}
	c.Seed = 8
	if _, tr := drive(t, c, 2*time.Minute); tr == truths {
		t.Error("another seed: got the same drive, want another")
	}
}

// In one tide each state occurs, and on two roads a jam forms and dissolves.
func TestAllStates(t *testing.T) {
	f := New(Config{Vehicles: 300, PerSecond: 0.1, Seed: 1})
	var seconds [4]int
	var parked int
	changes := make(map[*road]int)
	jammed := make(map[*road]bool)
	for f.Now() < tide {
		f.Step(func(int, time.Duration, signal.Readings) {})
		if f.Now()%time.Second != 0 {
			continue
		}
		jam := make(map[*road]int)
		for i, c := range f.cars {
			truth := f.Truth(i)
			seconds[truth.Driving]++
			if truth.Parked {
				parked++
			}
			if truth.Driving == driving.Jam {
				jam[c.road]++
			}
		}
		for _, r := range f.roads {
			if is := jam[r] > len(r.cars)/4; is != jammed[r] {
				jammed[r] = is
				changes[r]++
			}
		}
	}
	all := float64(len(f.cars)) * tide.Seconds()
	t.Logf("no truth %.2f, normal %.2f, slow %.2f, jam %.2f, parked %.2f of the time",
		float64(seconds[0])/all, float64(seconds[1])/all, float64(seconds[2])/all, float64(seconds[3])/all,
		float64(parked)/all)
	for _, n := range []int{seconds[1], seconds[2], seconds[3], 2 * parked} {
		if float64(n) < 0.1*all {
			t.Errorf("got %v s of each truth, parked %d, want a tenth of %.0f or more", seconds, parked, all)
			break
		}
	}
	comesAndGoes := 0
	for _, n := range changes {
		if n >= 2 {
			comesAndGoes++
		}
	}
	if comesAndGoes < 2 {
		t.Errorf("roads where jams came and went: got %d, want 2 or more", comesAndGoes)
	}
}

// Cars without faults have no anomaly, and report in order and as often as configured.
func TestHealthyCars(t *testing.T) {
	for _, perSecond := range []float64{0.1, 1, 5} {
		f := New(Config{Vehicles: 40, PerSecond: perSecond, Seed: 3})
		states := make([]vehicle.State, len(f.cars))
		start := signal.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))
		reports, last := 0, make([]time.Duration, len(f.cars))
		for f.Now() < 15*time.Minute {
			f.Step(func(i int, at time.Duration, r signal.Readings) {
				if at < last[i] || at > f.Now() || at < f.Now()-Step {
					t.Errorf("at %s: got a reading of %s after one of %s, want them in order", f.Now(), at, last[i])
				}
				last[i] = at
				reports++
				states[i] = vehicle.Observe(states[i], vehicle.Sample{Vehicle: "car", Time: start.Add(at), Readings: r})
				if v := states[i].Throttle(); v.Time != 0 && v.System == throttle.Anomaly {
					t.Fatalf("car %d, %g readings a second, after %s: got an anomaly, want none: %s", i, perSecond, at,
						states[i].ExplainThrottle().Text)
				}
			})
		}
		if want := perSecond * 15 * 60 * 40; float64(reports) < 0.75*want || float64(reports) > 1.05*want {
			t.Errorf("the reports: got %d, want some %.0f less those of parked cars", reports, want)
		}
	}
}

func get(r *signal.Readings, s signal.Signal) float64 {
	v, _ := r.Value(s)
	return float64(v)
}

func from(r *signal.Readings) point {
	return point{
		(get(r, signal.CurrentLongitude) - townLongitude) * meterADegree * math.Cos(townLatitude*math.Pi/180),
		(get(r, signal.CurrentLatitude) - townLatitude) * meterADegree,
	}
}

// Fixes are near the car, never in side streets, and no car seems to move faster than 300 km/h.
func TestPositions(t *testing.T) {
	for perSecond, long := range map[float64]time.Duration{0.1: 20 * time.Minute, 1: 8 * time.Minute,
		10: 3 * time.Minute} {
		f := New(Config{Vehicles: 200, PerSecond: perSecond, Seed: 4})
		type fix struct {
			at time.Duration
			point
		}
		last := make([]fix, len(f.cars))
		var fixes, headings, parkedFixes, moved int
		was := make([]*road, len(f.cars))
		var errs float64
		for f.Now() < long {
			f.Step(func(i int, at time.Duration, r signal.Readings) {
				c := f.cars[i]
				if c.place == sideStreet {
					if r.Has(signal.CurrentLatitude) || r.Has(signal.CurrentHeading) {
						t.Fatalf("car %d in a side street: got a fix, want none", i)
					}
					return
				}
				here := fix{at, from(&r)}
				fixes++
				if a := get(&r, signal.CurrentAccuracy); !r.Has(signal.CurrentAccuracy) || a < 4 || a > 6 {
					t.Fatalf("the accuracy: got %g m, want 4 to 6", a)
				}
				if before := last[i]; before.at != 0 {
					if mps := before.to(here.point) / (at - before.at).Seconds(); mps > 300/3.6 {
						t.Fatalf("%g Hz: got %.0f m in %s, want 83 m/s", perSecond, before.to(here.point), at-before.at)
					}
				}
				last[i] = here
				if c.place == parked {
					parkedFixes++
					return
				}
				if was[i] != nil && was[i] != c.road {
					moved++
				}
				was[i] = c.road
				is, heading := c.road.ring.at(c.meter)
				off := is.to(here.point)
				errs += off
				if off > 30+Step.Seconds()*c.mps {
					t.Fatalf("a fix: got it %.0f m from its car, want %.0f at most", off, 30+Step.Seconds()*c.mps)
				}
				if r.Has(signal.CurrentHeading) {
					headings++
					by := math.Remainder(get(&r, signal.CurrentHeading)-heading*180/math.Pi, 360)
					if get(&r, signal.Speed) < 3 || math.Abs(by) > 60 {
						t.Fatalf("a heading: got %.0f degrees off at %g km/h, want 60, at 3", by, get(&r, signal.Speed))
					}
				}
			})
		}
		if mean := errs / float64(fixes-parkedFixes); headings < fixes/4 || headings == fixes || parkedFixes == 0 ||
			moved == 0 || mean < 3 || mean > 9 {
			t.Errorf("%g Hz: got %d fixes, %d with a heading, %d parked, %d changes of the road, %.1f m off, "+
				"want a quarter with a heading, and 3 to 9 m", perSecond, fixes, headings, parkedFixes, moved, mean)
		}
	}
}

func TestWithoutPositions(t *testing.T) {
	said := func(without bool) (all []string) {
		f := New(Config{Vehicles: 60, PerSecond: 1, Seed: 7, WithoutPositions: without})
		for f.Now() < time.Minute {
			f.Step(func(i int, at time.Duration, r signal.Readings) {
				if without && r.Has(signal.CurrentLatitude) {
					t.Fatal("without positions: got one, want none")
				}
				var others []float64
				for s := range signal.CurrentLatitude {
					others = append(others, get(&r, s))
				}
				all = append(all, fmt.Sprint(i, at, others))
			})
		}
		return all
	}
	if fmt.Sprint(said(false)) != fmt.Sprint(said(true)) {
		t.Error("without positions: got other readings, want the same")
	}
}

// In light traffic, 98 % of the reports are normal, and the roads are the same.
func TestFleet_LightDay(t *testing.T) {
	c := Config{Vehicles: 200, PerSecond: 0.1, Seed: 1}
	busy := New(c)
	c.Light = true
	f := New(c)
	for i, r := range f.roads {
		if r.lengthMeter != busy.roads[i].lengthMeter || r.ring != busy.roads[i].ring {
			t.Errorf("road %d: got another place, want that of the busy day", i)
		}
	}
	f.Settle(5 * time.Minute)
	var normal, all float64
	for f.Now() < tide {
		f.Step(func(i int, _ time.Duration, _ signal.Readings) {
			switch f.Truth(i).Driving {
			case driving.Normal:
				normal++
				fallthrough
			case driving.Slow, driving.Jam:
				all++
			}
		})
	}
	if all == 0 || normal < 0.98*all {
		t.Errorf("normal: got %.0f of %.0f readings, want 98 %%", normal, all)
	}
}

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
				t.Fatalf("a car passed a red light: got it %s after yellow, at %.1f m/s, want 2s", since-yellow, c.mps)
			}
		}
	}
}
