package vehicle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"carstate/internal/vehicle"
)

// TestCrossValidation prints the figures of docs/verdicts.md:
//
//	go test -run TestCrossValidation -v ./internal/vehicle
//
// and fails if the rules fall below what they once reached.
func TestCrossValidation(t *testing.T) {
	dir := recordedDrives()
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
	bootstrap(t, cars, &standard)
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

	var across confusion
	for test := range cars {
		tuned := tune(&cars[1-test])
		o := cars[test].drive(&tuned)
		across.add(o.confusion)
		t.Logf("%-34s %v", "tuned on the other, "+cars[test].name, &o.confusion)
	}
	t.Logf("%-34s %v", "tuned on the other, both", &across)

	f, macro := pooled.f1()
	if macro < 0.57 || f[vehicle.TrafficJam] < 0.56 {
		t.Errorf("macro-F1 %.3f, jam F1 %.3f: worse than it was", macro, f[vehicle.TrafficJam])
	}
}

// baselines are the simplest rules that one could have, for comparison.
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

// byMean judges by a decayed mean speed that starts each drive at 40 km/h.
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

// tune draws thresholds at random and keeps the best for one car.
func tune(car *recording) vehicle.Rules {
	random := rand.New(rand.NewPCG(1, 2))
	best, score := vehicle.StandardRules(), -1.0
	for range 300 {
		r := vehicle.StandardRules()
		for _, th := range vehicle.Tunables(&r) {
			*th.At = th.Lo + random.Float32()*(th.Hi-th.Lo)
		}
		o := car.drive(&r)
		f, macro := o.confusion.f1()
		if s := macro + f[vehicle.TrafficJam]; s > score {
			best, score = r, s
		}
	}
	return best
}

// bootstrap draws drives with replacement, 2,000 times, and prints between what
// bounds nine of ten such sets of drives score.
func bootstrap(t *testing.T, cars []recording, rules *vehicle.Rules) {
	var each []confusion
	for i := range cars {
		for _, part := range cars[i].sessions() {
			each = append(each, part.drive(rules).confusion)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	var macros, jams []float64
	for range 2000 {
		var c confusion
		for range each {
			c.add(each[random.IntN(len(each))])
		}
		f, macro := c.f1()
		macros, jams = append(macros, macro), append(jams, f[vehicle.TrafficJam])
	}
	slices.Sort(macros)
	slices.Sort(jams)
	lo, hi := len(macros)/20, len(macros)*19/20
	t.Logf("%d drives drawn with replacement: macro-F1 %.2f to %.2f, jam F1 %.2f to %.2f (90 %%)",
		len(each), macros[lo], macros[hi], jams[lo], jams[hi])
}

// TestSameRouteOrder compares drives of one route: one that its driver called a
// jam should spend a larger part of its time in one than each of the others.
func TestSameRouteOrder(t *testing.T) {
	dir := recordedDrives()
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

// routeOf takes the route and the label out of a name such as
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
