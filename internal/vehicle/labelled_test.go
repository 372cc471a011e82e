package vehicle_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// TestLabelledDrives checks that the rules do not fall below what they once reached on the drives
// that have labels. It prints the figures of docs/verdicts.md:
//
//	go test -run TestLabelledDrives -v ./internal/vehicle
func TestLabelledDrives(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	dir := testkit.RecordedDrives("the rules are tried on invented drives only")
	if dir == "" {
		return
	}
	cars := recordings(t, dir, "tds/*_01.csv*")
	if len(cars) != 2 {
		t.Fatalf("%d labelled cars, want 2", len(cars))
	}
	var pooled confusion
	for i := range cars {
		o := cars[i].drive()
		pooled.add(o.confusion)
		t.Logf("%-34s %v  %v", cars[i].name, &o.confusion, o.confusion[1:])
	}
	t.Logf("%-34s %v  %v", "both", &pooled, pooled[1:])
	bootstrap(t, slices.Concat(cars[0].sessions(), cars[1].sessions()))
	f, macro := pooled.f1()
	if macro < 0.42 || f[vehicle.TrafficJam] < 0.39 {
		t.Errorf("macro-F1 %.3f, jam F1 %.3f: worse than it was", macro, f[vehicle.TrafficJam])
	}
}

// byMean returns the confusion of a baseline, the simplest possible rule. It compares the mean speed
// with fixed thresholds. The mean decays exponentially with a time constant of 120 s, and starts
// each drive at 40 km/h.
func byMean(r *recording) (c confusion) {
	const decay, jam, slow = 120 * time.Second, 15, 25
	var mean float64
	var last vehicle.UnixMilli
	for i := range r.samples {
		x := &r.samples[i]
		if v, ok := x.Value(vehicle.OBDSpeed); ok {
			if step := x.Time.Sub(last); step > 10*time.Minute {
				mean = 40
			} else {
				mean += (1 - math.Exp(-step.Seconds()/decay.Seconds())) * (float64(v) - mean)
			}
			last = x.Time
		}
		switch l := r.labels[i]; {
		case mean < jam:
			c[l][vehicle.TrafficJam]++
		case mean < slow:
			c[l][vehicle.SlowDriving]++
		default:
			c[l][vehicle.NormalDriving]++
		}
	}
	return c
}

// bootstrap draws sets of drives with replacement, 2,000 times. It prints the limits between which
// the scores of 90 % of these sets lie, and in how many sets the baseline byMean scores better than
// the rules.
func bootstrap(t *testing.T, drives []recording) {
	var each, means [18]confusion
	if len(drives) != len(each) {
		t.Fatalf("%d labelled drives, want %d", len(drives), len(each))
	}
	for i := range drives {
		each[i], means[i] = drives[i].drive().confusion, byMean(&drives[i])
	}
	random := rand.New(rand.NewPCG(3, 4))
	var macros, jams []float64
	better, jamBetter := 0, 0
	const sets = 2000
	for range sets {
		var c, m confusion
		for range each {
			k := random.IntN(len(each))
			c.add(each[k])
			m.add(means[k])
		}
		f, macro := c.f1()
		macros, jams = append(macros, macro), append(jams, f[vehicle.TrafficJam])
		g, mean := m.f1()
		if mean > macro {
			better++
		}
		if g[vehicle.TrafficJam] > f[vehicle.TrafficJam] {
			jamBetter++
		}
	}
	slices.Sort(macros)
	slices.Sort(jams)
	lo, hi := sets/20, sets*19/20
	t.Logf("%d drives drawn with replacement: macro-F1 %.2f to %.2f, jam F1 %.2f to %.2f (90 %%)",
		len(each), macros[lo], macros[hi], jams[lo], jams[hi])
	t.Logf("of %d such sets the mean of 120 s is better on %d by macro-F1, on %d by jam F1", sets, better, jamBetter)
	if better > sets/20 || jamBetter > sets/10 {
		t.Errorf("the mean of 120 s is better on %d and %d of %d sets of drives", better, jamBetter, sets)
	}
}

// TestSameRouteOrder compares drives on the same route. A drive labelled as a jam must spend more
// time in a jam than a drive with another label, in seconds and as a part of the drive. This must
// be so for nine of ten pairs.
func TestSameRouteOrder(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	dir := testkit.RecordedDrives("the rules are tried on invented drives only")
	if dir == "" {
		return
	}
	type judged struct {
		name, route, label string
		part, seconds      float64
	}
	var drives []judged
	for _, rec := range recordings(t, dir, "kit_obd/*.csv*") {
		route, label := routeOf(rec.name)
		o := rec.drive()
		driven := o.seconds[1] + o.seconds[2] + o.seconds[3]
		drives = append(drives, judged{rec.name, route, label, o.seconds[3] / driven, o.seconds[3]})
		t.Logf("%-52s in a jam %4.0f s of %5.0f s, %4.1f %%", rec.name, o.seconds[3], driven, 100*o.seconds[3]/driven)
	}
	pairs, byPart, bySeconds := 0, 0, 0
	for _, jam := range drives {
		for _, other := range drives {
			if jam.label != "Stau" || other.label == "Stau" || jam.route != other.route {
				continue
			}
			pairs++
			if jam.part > other.part {
				byPart++
			} else {
				t.Logf("%s (%.1f %%) is not above %s (%.1f %%)", jam.name, 100*jam.part, other.name, 100*other.part)
			}
			if jam.seconds > other.seconds {
				bySeconds++
			}
		}
	}
	t.Logf("%d pairs on one route, in order by part of the time: %d, by seconds: %d", pairs, byPart, bySeconds)
	if pairs == 0 || byPart*10 < pairs*9 || bySeconds*10 < pairs*9 {
		t.Errorf("%d and %d of %d pairs in order, want 9 of 10", byPart, bySeconds, pairs)
	}
}

// routeOf extracts the route and the label from a name such as
// 2017-07-27_Seat_Leon_KA_KA_2_Normal.
func routeOf(name string) (route, label string) {
	_, rest, _ := strings.Cut(name, "Seat_Leon_")
	words := strings.Split(rest, "_")
	for _, w := range words[2:] {
		if w == "Stau" || w == "Normal" || w == "Frei" {
			label = w
		}
	}
	return words[0] + "_" + words[1], label
}
