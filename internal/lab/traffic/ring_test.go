package traffic

import (
	"fmt"
	"math"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
)

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
						t.Fatal("a fix in a side street")
					}
					return
				}
				here := fix{at, from(&r)}
				fixes++
				if a := get(&r, signal.CurrentAccuracy); !r.Has(signal.CurrentAccuracy) || a < 4 || a > 6 {
					t.Fatalf("an accuracy of %g m", a)
				}
				if before := last[i]; before.at != 0 {
					if mps := before.to(here.point) / (at - before.at).Seconds(); mps > 300/3.6 {
						t.Fatalf("at %g Hz: a jump of %.0f m in %s", perSecond, before.to(here.point), at-before.at)
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
					t.Fatalf("a fix is %.0f m from its car", off)
				}
				if r.Has(signal.CurrentHeading) {
					headings++
					by := math.Remainder(get(&r, signal.CurrentHeading)-heading*180/math.Pi, 360)
					if get(&r, signal.Speed) < 3 || math.Abs(by) > 60 {
						t.Fatalf("a heading that is off by %.0f degrees at %g km/h", by, get(&r, signal.Speed))
					}
				}
			})
		}
		if mean := errs / float64(fixes-parkedFixes); headings < fixes/4 || headings == fixes || parkedFixes == 0 ||
			moved == 0 || mean < 3 || mean > 9 {
			t.Errorf("%g Hz: %d fixes, %d with a heading, %d parked, "+
				"%d cars changed roads; %.1f m off on average", perSecond, fixes, headings, parkedFixes, moved, mean)
		}
	}
}

func TestWithoutPositions(t *testing.T) {
	said := func(without bool) (all []string) {
		f := New(Config{Vehicles: 60, PerSecond: 1, Seed: 7, WithoutPositions: without})
		for f.Now() < time.Minute {
			f.Step(func(i int, at time.Duration, r signal.Readings) {
				if without && r.Has(signal.CurrentLatitude) {
					t.Fatal("a position")
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
		t.Error("without positions, other readings differ")
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
			t.Errorf("road %d lies elsewhere", i)
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
		t.Errorf("normal in %.0f of %.0f readings", normal, all)
	}
}
