//go:build !race

package faults_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/lab/faults"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var (
	full = flag.Bool("full", false,
		"every drive at every interval, every fault at three times of each drive: minutes instead of seconds")
	table = flag.Bool("table", false, "print the figures")
)

// Drives are also begun in the middle, and follow one another.
func TestHealthyDrivesHaveNoAnomaly(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	hours := map[string]float64{}
	lives := map[string]vehicle.State{}
	offset := map[string]time.Duration{}
	for _, d := range recorded(t) {
		for from := range 10 {
			part := aDrive{d.car, d.name, d.samples[len(d.samples)*from/10:]}
			if from > 0 && !*full && from != 5 {
				continue
			}
			var s vehicle.State
			if at, why := part.anomaly(&s); at != 0 {
				t.Errorf("%s/%s from %d/10: got anomaly at %v, want none: %s", d.car, d.name, from, at.Sub(start), why)
			}
		}
		lasts := d.samples[len(d.samples)-1].Time.Sub(start)
		hours[d.car] += lasts.Hours()

		later := aDrive{d.car, d.name, make([]vehicle.Sample, len(d.samples))}
		for i, x := range d.samples {
			x.Time = x.Time.Add(offset[d.car])
			later.samples[i] = x
		}
		offset[d.car] += lasts + 8*time.Hour
		s := lives[d.car]
		if at, why := later.anomaly(&s); at != 0 {
			t.Errorf("%s/%s after the drives before it: got an anomaly, want none: %s", d.car, d.name, why)
		}
		lives[d.car] = s
	}
	if *table {
		fmt.Println("healthy hours:", hours)
	}
}

var intervals = []time.Duration{
	500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second, 2500 * time.Millisecond,
	3 * time.Second,
	4 * time.Second, 5 * time.Second, 6 * time.Second, 8 * time.Second, 10 * time.Second, 15 * time.Second,
	30 * time.Second, time.Minute,
}

// One anomaly in 500 drives is allowed, because time stamps of readings that are sent together are
// off by more than the rules are designed for.
func TestHealthyAtAnyInterval(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	drives, anomalies := 0, 0
	for n, d := range recorded(t) {
		for k, every := range intervals {
			if !*full && (n+k)%7 != 0 {
				continue
			}
			for _, d := range []aDrive{d.together(every), d.thinned(every)} {
				var s vehicle.State
				drives++
				if at, why := d.anomaly(&s); at != 0 {
					anomalies++
					t.Logf("%s/%s: anomaly at %v: %s", d.car, d.name, at.Sub(start), why)
				}
			}
		}
	}
	if anomalies*500 > drives+499 {
		t.Errorf("anomalies at other intervals: got %d in %d healthy drives, want 1 in 500", anomalies, drives)
	}
	if *table {
		fmt.Printf("healthy drives read at other intervals: %d, of them with an anomaly: %d\n", drives, anomalies)
	}
}

// A pedal sensor 20 % off must be found within 10 s, or if read less than every 2 s, within forty
// samples.
func TestInventedCars(t *testing.T) {
	for car := range inventedCars {
		for _, every := range append([]time.Duration{100 * time.Millisecond}, intervals...) {
			for seed := range uint64(3) {
				d := invented(t, car, seed, max(20*time.Minute, 300*every), every)
				var s vehicle.State
				if at, why := d.anomaly(&s); at != 0 {
					t.Errorf("%s %s: got an anomaly at %v, want none: %s", car, d.name, at.Sub(start), why)
				}
				if car == "one sensor" {
					continue // there is no other sensor to compare the faulty sensor with
				}
				half := len(d.samples) / 2
				s, j := watch(d.samples[:half])
				within := 10 * time.Second
				if every > 2*time.Second {
					within = 40 * every
				}
				o := try(s, j, faults.Fault{Kind: faults.Offset, On: signal.AcceleratorPositionD, Size: 20},
					d.samples[half:], time.Hour+within)
				if !o.found || o.after > within {
					t.Errorf("%s %s: a pedal sensor 20 %% off: got found %v after %v, want in %v", car, d.name, o.found,
						o.after, within)
				}
			}
		}
	}
}
