package vehicle_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

var full = flag.Bool("full", false, "six searches for thresholds instead of one")

// TestCrossValidation checks that the rules do not fall below what they once reached. It prints
// the figures of docs/verdicts.md:
//
//	go test -run TestCrossValidation -v ./internal/vehicle -full
func TestCrossValidation(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	dir := testkit.RecordedDrives("the rules are tried on invented drives only")
	if dir == "" {
		return
	}
	cars := recordings(t, dir, "tds/*_01.csv*")
	if len(cars) != 2 {
		t.Fatalf("%d labelled cars, want 2", len(cars))
	}
	standard := vehicle.StandardRules()
	var pooled confusion
	for i := range cars {
		o := cars[i].drive(&standard)
		pooled.add(o.confusion)
		t.Logf("%-34s %v  %v", "rules in force, "+cars[i].name, &o.confusion, o.confusion[1:])
	}
	t.Logf("%-34s %v  %v", "rules in force, both", &pooled, pooled[1:])
	congested := pooled.withShares(0.53, 0.22, 0.25)
	t.Logf("%-34s %v", "rules in force, congested", &congested)
	parts := slices.Concat(cars[0].sessions(), cars[1].sessions())
	bootstrap(t, parts, &standard)
	for _, base := range baselines {
		var c confusion
		for i := range cars {
			c.add(base.judge(&cars[i]))
		}
		t.Logf("%-34s %v", base.name+", both", &c)
	}
	for _, every := range []int{5, 10, 30, 60} {
		var c confusion
		for i := range cars {
			thin := cars[i].thinned(every)
			o := thin.drive(&standard)
			c.add(o.confusion)
		}
		t.Logf("%-34s %v", fmt.Sprintf("one reading in %d s, both", every), &c)
	}

	tuned(t, parts, len(cars[0].sessions()))

	f, macro := pooled.f1()
	if macro < 0.42 || f[vehicle.TrafficJam] < 0.39 {
		t.Errorf("macro-F1 %.3f, jam F1 %.3f: worse than it was", macro, f[vehicle.TrafficJam])
	}
}

// baselines are the simplest possible rules, for comparison.
var baselines = []struct {
	name  string
	judge func(*recording) confusion
}{
	{"always normal", func(r *recording) (c confusion) {
		for _, l := range r.labels {
			c[l][vehicle.NormalDriving]++
		}
		return c
	}},
	{"speed below 10, 25 km/h", func(r *recording) confusion {
		return byMean(r, 0, 10, 25)
	}},
	{"mean of 120 s below 15, 25 km/h", func(r *recording) confusion {
		return byMean(r, 120*time.Second, 15, 25)
	}},
}

// byMean returns the confusion of a rule that compares an exponentially decayed mean speed with
// fixed thresholds. The mean starts each drive at 40 km/h.
func byMean(r *recording, decay time.Duration, jam, slow float64) (c confusion) {
	var mean float64
	var last vehicle.UnixMilli
	for i := range r.samples {
		x := &r.samples[i]
		v, ok := x.Value(vehicle.OBDSpeed)
		switch step := x.Time.Sub(last); {
		case ok && decay == 0:
			mean = float64(v)
		case ok && step > 10*time.Minute:
			mean = 40
		case ok:
			mean += (1 - math.Exp(-step.Seconds()/decay.Seconds())) * (float64(v) - mean)
		}
		if ok {
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

// tuned searches thresholds at random, and scores the best ones on drives that the search did not
// use. It does so in two ways. First, it searches on the drives of one of two cars, and scores on
// those of the other car. Second, it searches on all drives but one, and scores on that one. The
// drives begin with those of the first car; the parameter first is their number. With -full, tuned
// searches six times and prints the search with the median score.
func tuned(t *testing.T, drives []recording, first int) {
	const draws = 300
	searches := 1
	if *full {
		searches = 6
	}
	var byCar, byDrive []confusion
	for seed := range searches {
		random := rand.New(rand.NewPCG(uint64(seed)+1, 2))
		tried := make([][]confusion, draws) // by draw, by drive
		for k := range tried {
			r := vehicle.StandardRules()
			for _, th := range vehicle.Tunables(&r) {
				*th.At = th.Lo + random.Float32()*(th.Hi-th.Lo)
			}
			for i := range drives {
				tried[k] = append(tried[k], drives[i].drive(&r).confusion)
			}
		}
		// best chooses the thresholds that score best on the drives for which test returns
		// false. It returns their confusion on the drives for which test returns true.
		best := func(test func(i int) bool) (out confusion) {
			score := -1.0
			for _, each := range tried {
				var fit, rest confusion
				for i := range each {
					if test(i) {
						rest.add(each[i])
					} else {
						fit.add(each[i])
					}
				}
				f, macro := fit.f1()
				if s := macro + f[vehicle.TrafficJam]; s > score {
					score, out = s, rest
				}
			}
			return out
		}
		one, other := best(func(i int) bool { return i < first }), best(func(i int) bool { return i >= first })
		one.add(other)
		byCar = append(byCar, one)
		var left confusion
		for k := range drives {
			left.add(best(func(i int) bool { return i == k }))
		}
		byDrive = append(byDrive, left)
	}
	for what, all := range [][]confusion{byCar, byDrive} {
		slices.SortFunc(all, func(a, b confusion) int {
			_, x := a.f1()
			_, y := b.f1()
			return cmp.Compare(x, y)
		})
		_, least := all[0].f1()
		_, most := all[searches-1].f1()
		t.Logf("%-34s %v (searches: macro-F1 %.3f to %.3f)",
			[]string{"tuned on the other car", "tuned on the other drives"}[what], &all[searches/2], least, most)
	}
}

// bootstrap draws sets of drives with replacement, 2,000 times. It prints the limits between which
// the scores of 90 % of these sets lie, and in how many sets the baseline of a decayed mean scores
// better than the rules.
func bootstrap(t *testing.T, drives []recording, rules *vehicle.Rules) {
	var each, byMean [18]confusion
	if len(drives) != len(each) {
		t.Fatalf("%d labelled drives, want %d", len(drives), len(each))
	}
	for i := range drives {
		each[i], byMean[i] = drives[i].drive(rules).confusion, baselines[len(baselines)-1].judge(&drives[i])
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
			m.add(byMean[k])
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
	standard := vehicle.StandardRules()
	type judged struct {
		name, route, label string
		part, seconds      float64
	}
	var drives []judged
	for _, rec := range recordings(t, dir, "kit_obd/*.csv*") {
		route, label := routeOf(rec.name)
		o := rec.drive(&standard)
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
