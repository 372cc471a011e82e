//go:build !race

package faults_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/lab/faults"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

var sensors = []signal.Signal{
	signal.ThrottlePosition, signal.ThrottlePositionB, signal.ThrottleActuator,
	signal.AcceleratorPositionD, signal.AcceleratorPositionE,
}

func allFaults() (fs []faults.Fault) {
	for i, g := range sensors {
		for _, size := range []float64{-30, -20, -10, 10, 20, 30} {
			fs = append(fs, faults.Fault{Kind: faults.Offset, On: g, Size: size})
		}
		for _, size := range []float64{0.5, 0.7, 1.5, 2} {
			fs = append(fs, faults.Fault{Kind: faults.Gain, On: g, Size: size})
		}
		for _, size := range []float64{10, 20, 30} {
			fs = append(fs, faults.Fault{Kind: faults.Noise, On: g, Size: size, Seed: uint64(i + 1)})
		}
		for _, k := range []faults.Kind{faults.Stuck, faults.ShortGround, faults.ShortBattery} {
			fs = append(fs, faults.Fault{Kind: k, On: g})
		}
	}
	return append(fs,
		faults.Fault{Kind: faults.LostCommand, On: signal.ThrottleActuator},
		faults.Fault{Kind: faults.StuckPlate, On: signal.ThrottlePosition},
		faults.Fault{Kind: faults.OpenPlate, On: signal.ThrottlePosition, Size: 20},
		faults.Fault{Kind: faults.OpenPlate, On: signal.ThrottlePosition, Size: 60},
		faults.Fault{Kind: faults.LimpHome, On: signal.ThrottlePosition},
	)
}

// floor is the least share of a class's observable faults that must be found, slightly below the
// table of docs/verdicts.md; 0 if nothing can show them.
func (c class) floor() float64 {
	pedal := c.on == "AcceleratorPositionD" || c.on == "AcceleratorPositionE"
	paired := c.car == "carobd" || c.car == "kit_obd" && pedal
	switch {
	case c.car == "hil":
		return 0
	case strings.HasPrefix(c.kind, "short") && (paired || pedal):
		return 0.97
	case c.kind == "short to ground": // nothing contradicts it if the car was never seen stationary
		return 0.85
	case c.kind == "short to battery" && c.car == "kit_obd":
		return 0.9
	case c.kind == "short to battery": // a plate that opens at idle may be a diesel's flap
		return 0.45
	case c.car == "carobd" && c.kind == "stuck" && pedal:
		return 0.9
	case c.car == "carobd" && c.kind == "stuck":
		return 0.6
	case c.car == "carobd" && c.kind == "stuck plate":
		return 0.65
	case c.car == "carobd" && c.kind == "noise 10":
		return 0.85
	case c.car == "carobd", c.car == "kit_obd" && pedal:
		return 0.97
	case !pedal && (c.kind == "noise 20" || c.kind == "noise 30"):
		return 0.85
	}
	return 0
}

type outcome struct {
	observable bool
	brief      bool // the fault was observable for less than 10 s, and was not found
	found      bool
	after      time.Duration // from observable to found; 0 if it was found before
}

const watched = 15 * time.Minute

func watch(samples []vehicle.Sample) (s vehicle.State, j faults.Injector) {
	for i := range samples {
		s = vehicle.Observe(s, samples[i])
		j.Watch(&samples[i].Readings)
	}
	return s, j
}

func try(s vehicle.State, healthy faults.Injector, f faults.Fault, rest []vehicle.Sample, watched time.Duration) (o outcome) {
	j := healthy.Begin(f)
	begin, since, seen := rest[0].Time, signal.UnixMilli(0), time.Duration(0)
	last := begin
	for i := range rest {
		x := rest[i]
		if x.Time.Sub(begin) > watched {
			break
		}
		changed := j.Apply(&x.Readings)
		if changed > f.Deviation() {
			if !o.observable {
				o.observable, since = true, x.Time
			}
			seen += min(x.Time.Sub(last), 2*time.Second)
			last = x.Time
		} else if x.Has(f.On) {
			last = x.Time
		}
		s = vehicle.Observe(s, x)
		if v := s.Throttle(); v.Time != 0 && v.System == throttle.Anomaly {
			if o.found = true; o.observable {
				o.after = x.Time.Sub(since)
			}
			return o
		}
	}
	o.brief = seen < 10*time.Second
	return o
}

type class struct {
	car  string
	kind string
	on   string
}

type tally struct {
	tried, observable, found, brief, within int
	after                                   []time.Duration
}

// Every fault is put into every drive. At least 70 % of the found ones are found within 10 s.
func TestInjectedFaultsAreFound(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	tallies := map[class]*tally{}
	var order []class
	for n, d := range recorded(t) {
		has := func(g signal.Signal) bool {
			return slices.ContainsFunc(d.samples, func(x vehicle.Sample) bool { return x.Has(g) })
		}
		at := []float64{[]float64{0.25, 0.5, 0.75}[n%3]}
		if *full {
			at = []float64{0.25, 0.5, 0.75}
		}
		for _, share := range at {
			first := int(share * float64(len(d.samples)))
			s, j := watch(d.samples[:first])
			for _, f := range allFaults() {
				if !has(f.On) || f.Kind == faults.LimpHome && !has(signal.ThrottleActuator) {
					continue
				}
				o := try(s, j, f, d.samples[first:], watched)
				kind := f.Kind.String()
				if f.Kind == faults.Noise || f.Kind == faults.OpenPlate {
					kind = fmt.Sprintf("%s %g", kind, f.Size)
				}
				if f.Kind == faults.Offset {
					kind = fmt.Sprintf("%s ±%g", kind, math.Abs(f.Size))
				}
				c := class{d.car, kind, strings.TrimPrefix(f.On.String(), "Vehicle.OBD.")}
				y := tallies[c]
				if y == nil {
					y = new(tally)
					tallies[c] = y
					order = append(order, c)
				}
				y.add(o)
			}
		}
	}
	within, found := 0, 0
	for _, c := range order {
		y := tallies[c]
		if recall := float64(y.found) / float64(max(1, y.observable)); y.observable > 0 && recall < c.floor() {
			t.Errorf("%s, %s of %s: got %d of %d found, want %g", c.car, c.kind, c.on, y.found, y.observable, c.floor())
		}
		if c.floor() > 0 {
			within, found = within+y.within, found+y.found
		}
		if *table {
			fmt.Println(y.line(c))
		}
	}
	if found > 0 && float64(within) < 0.7*float64(found) {
		t.Errorf("faults found within 10 s: got %d of %d, want 7 of 10", within, found)
	}
	if *table {
		fmt.Printf("found within 10 s: %d of %d\n", within, found)
	}
}

func (y *tally) line(c class) string {
	slices.Sort(y.after)
	at := func(share float64) float64 {
		if len(y.after) == 0 {
			return math.NaN()
		}
		return y.after[int(share*float64(len(y.after)-1))].Seconds()
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %.3f | %d | %.2f | %.1f | %.1f |", c.car, c.on, c.kind, y.tried,
		y.observable,
		float64(y.found)/float64(max(1, y.observable)), y.brief, float64(y.within)/float64(max(1, y.found)), at(0.5),
		at(0.9))
}

func (y *tally) add(o outcome) {
	y.tried++
	if !o.observable && !o.found {
		return
	}
	y.observable++
	if !o.found {
		if o.brief {
			y.brief++
		}
		return
	}
	y.found++
	y.after = append(y.after, o.after)
	if o.after <= 10*time.Second {
		y.within++
	}
}
