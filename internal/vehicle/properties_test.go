package vehicle

import (
	"flag"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMain makes rapid draw more drives than its default of 100, because the rules depend on rare
// coincidences. The flag -rapid.checks still overrides the number.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	m.Run()
}

// check fails the test if the state violates an invariant of all states.
func check(t interface{ Fatalf(string, ...any) }, s State) {
	speedRead := s.Latest[Speed].Time != 0 || s.Latest[OBDSpeed].Time != 0
	for i, r := range s.Latest {
		g := Signal(i)
		disproved := g == LowVoltageSystemState && r.Value == float32(IgnitionUndefined)
		if r.Time != 0 && !g.holds(float64(r.Value)) && !disproved {
			t.Fatalf("%s is %g", g, r.Value)
		}
		if r.Time < 0 || r.Time > s.Time {
			t.Fatalf("%s was read at %d, after %d", g, r.Time, s.Time)
		}
	}
	if m := float64(s.MeanSpeed); math.IsNaN(m) || m < 0 || m > 500 {
		t.Fatalf("mean speed is %g", m)
	}
	if m := s.Traffic; !(m.Share >= 0 && m.Share < 1000) || !(m.MeanSeconds >= 0 && m.MeanSeconds <= 60.01) ||
		!(m.Stop >= 0 && m.Stop <= longStop) ||
		!(m.Rolled >= 0 && m.Rolled <= 1.001*moveUp) ||
		!(m.Cruise >= 0 && m.Cruise <= 1.001*mostAssumed/perCruise) ||
		m.Start > s.Time || m.Changed > s.Time || (m.Start != 0) != speedRead || m.Source >= NumFreeFlowSources {
		t.Fatalf("traffic is %+v at %d, speed read: %v", m, s.Time, speedRead)
	}
	if s.RestingSince < 0 || s.RestingSince > s.Time || s.Traffic.Stood < 0 || s.Traffic.Stood > s.Time {
		t.Fatalf("resting since %d, standing since %d, after %d", s.RestingSince, s.Traffic.Stood, s.Time)
	}
	if s.Pace > TrafficJam || (s.Pace != 0) != speedRead {
		t.Fatalf("pace is %d, speed read: %v", s.Pace, speedRead)
	}

	d := s.Driving()
	// The time of a speed that was held (holdSpeed) is that of another, earlier reading.
	newest, _ := s.Speed()
	if held := s.Traffic.At > newest.Time; d.Time != 0 && !held && !readAt(s, d.Time, everySignal[:]...) {
		t.Fatalf("the driving verdict's time %d is that of no reading", d.Time)
	}
	if d.State != 0 && d.NotDriving || d.Time == 0 && d != (DrivingVerdict{}) ||
		d.Time != 0 && d.State == 0 && !d.NotDriving {
		t.Fatalf("a verdict that contradicts itself: %+v", d)
	}
	if speedRead && d.Time == 0 {
		t.Fatalf("a speed was read, but there is no driving verdict")
	}
	checkThrottle(t, s)
	h := s.Throttle()
	if h.Time == 0 && h.System == ThrottleNormal &&
		readAny(s, ThrottlePosition, ThrottlePositionB, RelativeThrottlePosition, ThrottleActuator) {
		t.Fatalf("a throttle was read, but there is no throttle verdict")
	}
	if d.Time > s.Time || h.Time > s.Time {
		t.Fatalf("verdicts %+v, %+v are newer than the state's %d", d, h, s.Time)
	}
}

var everySignal = func() (all [NumSignals]Signal) {
	for i := range all {
		all[i] = Signal(i)
	}
	return all
}()

func readAt(s State, t UnixMilli, signals ...Signal) bool {
	return slices.ContainsFunc(signals, func(g Signal) bool { return s.Latest[g].Time == t })
}

func readAny(s State, signals ...Signal) bool {
	return slices.ContainsFunc(signals, func(g Signal) bool { return s.Latest[g].Time != 0 })
}

// genReadings draws what a car may report: some signals, each in its range, with frequent
// values at the thresholds of the rules.
func genReadings(t *rapid.T) Readings {
	var r Readings
	for g := range Signal(NumSignals) {
		if !rapid.Bool().Draw(t, g.String()) {
			continue
		}
		var err error
		switch g {
		case DTCList:
			err = r.SetCodes(rapid.SliceOfN(rapid.SampledFrom(someCodes), 0, 3).Draw(t, "codes"))
		case LowVoltageSystemState:
			err = r.SetIgnition(rapid.SampledFrom([]Ignition{IgnitionLock, IgnitionOff, IgnitionAccessory, IgnitionOn,
				IgnitionStart}).Draw(t, "ignition"))
		default:
			lo, hi := signalTable[g].min, signalTable[g].max
			err = r.Set(g, rapid.OneOf(
				rapid.SampledFrom([]float64{lo, hi, min(hi, 3), min(hi, 6), min(hi, 17.5)}),
				rapid.Float64Range(lo, hi),
			).Draw(t, "value"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

var someCodes = []TroubleCode{{'P', '0', '1', '2', '0'}, {'P', '2', '1', '7', '6'}, {'P', '0', '3', '0', '0'},
	{'U', '0', '1', '0', '0'}}

// steps draws times between samples, in milliseconds, near the thresholds of the rules.
var steps = rapid.OneOf(
	rapid.SampledFrom([]int64{0, 1, 1000, 30_000, 30_001, 75_000, 75_001, 300_000, 600_000, 600_001, 3_600_001}),
	rapid.Int64Range(0, 1_000_000),
)

// genState draws the state after a drive of some samples.
func genState(t *rapid.T) State {
	var s State
	at := UnixMilli(1_800_000_000_000)
	for range rapid.IntRange(0, 12).Draw(t, "samples") {
		at += UnixMilli(steps.Draw(t, "step"))
		s = fold(t, s, Sample{Vehicle: "car", Time: at, Readings: genReadings(t)})
	}
	return s
}

// fold returns the state after a sample. It checks that the state is valid, that Fold reports
// whether it changed, that an older sample changes nothing, and that the same sample again changes
// nothing.
func fold(t interface{ Fatalf(string, ...any) }, s State, x Sample) State {
	next := s
	if changed := next.Fold(&x); changed != (next != s) {
		t.Fatalf("Fold returned %v, and changed %+v to %+v", changed, s, next)
	}
	check(t, next)
	newest := s.newest()
	late := !slices.ContainsFunc(everySignal[:], func(g Signal) bool { return x.Has(g) && x.Time >= newest[groupOf[g]] })
	if late && next != s {
		t.Fatalf("a late sample changed %+v to %+v", s, next)
	}
	if again := Observe(next, x); again != next {
		t.Fatalf("the same sample again changed %+v to %+v", next, again)
	}
	return next
}

func genSample(t *rapid.T, s State) Sample {
	at := max(s.Time, 1_800_000_000_000) + UnixMilli(steps.Draw(t, "step"))
	return Sample{Vehicle: "car", Time: at, Readings: genReadings(t)}
}

// TestNewSample checks that a newer sample sets the time of the state, and the checks of fold.
func TestNewSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		x := genSample(t, s)
		if s = fold(t, s, x); !x.Empty() && s.Time != x.Time {
			t.Fatalf("the state's time is %d after a sample of %d", s.Time, x.Time)
		}
	})
}

// TestRepeatedTailChangesNothing checks at-least-once delivery: if the latest samples arrive
// again, in order, the state does not change.
func TestRepeatedTailChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		var seen []Sample
		for range rapid.IntRange(1, 8).Draw(t, "tail") {
			x := genSample(t, s)
			seen = append(seen, x)
			s = Observe(s, x)
		}
		again := s
		for _, x := range seen[rapid.IntRange(0, len(seen)-1).Draw(t, "from"):] {
			again = Observe(again, x)
		}
		if again != s {
			t.Fatalf("%+v became %+v", s, again)
		}
	})
}

func TestOlderSampleChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		older := s.Time - UnixMilli(rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "older"))
		fold(t, s, Sample{Vehicle: "car", Time: older, Readings: genReadings(t)})
	})
}

// TestSplitSample checks that the signals of one time may arrive in several samples. It splits a
// sample into samples of one signal each, all with its time, folds them in two orders, and
// compares:
//
//   - always: the readings that both orders keep, and the throttle verdict;
//   - with at most one of the two speeds: whether the car is driving, and the driving
//     verdict's time;
//   - with at most one of the signals that the driving rule compares with each other
//     (two speeds, engine speed, ignition, free flow): the whole state.
//
// Other parts of the state may differ. Of two speeds of one time, the rules use the one that
// arrives first, with the free flow known at that moment. And a drive ends as soon as the signals
// that have arrived show its end.
func TestSplitSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		x := genSample(t, s)
		x.Time++ // newer than everything known: every signal is used
		var pieces []Sample
		for g := range Signal(NumSignals) {
			if v, ok := x.Value(g); ok {
				p := Sample{Vehicle: x.Vehicle, Time: x.Time}
				if err := p.Set(g, float64(v)); err != nil {
					t.Fatal(err)
				}
				if g == DTCList {
					p.Codes = x.Codes
				}
				pieces = append(pieces, p)
			}
		}
		one, other := s, s
		for _, p := range pieces {
			one = Observe(one, p)
		}
		for _, p := range rapid.Permutation(pieces).Draw(t, "order") {
			other = Observe(other, p)
		}
		check(t, one)
		check(t, other)

		for g := range Signal(NumSignals) {
			if g != LowVoltageSystemState && one.Latest[g] != other.Latest[g] {
				t.Fatalf("%s: %+v or %+v", g, one.Latest[g], other.Latest[g])
			}
		}
		if one.Throttle() != other.Throttle() {
			t.Fatalf("throttle: %+v or %+v", one.Throttle(), other.Throttle())
		}
		speeds := count(x, Speed, OBDSpeed)
		d, e := one.Driving(), other.Driving()
		if speeds <= 1 && (d.NotDriving != e.NotDriving || d.Time != e.Time) {
			t.Fatalf("driving: %+v or %+v", d, e)
		}
		if speeds+count(x, EngineSpeed, LowVoltageSystemState, FreeFlowSpeed) <= 1 && one != other {
			t.Fatalf("%+v or %+v", one, other)
		}
	})
}

func count(x Sample, signals ...Signal) (n int) {
	for _, g := range signals {
		if x.Has(g) {
			n++
		}
	}
	return n
}

// TestHostileReadings checks that folding readings that Readings.Set would have refused, with any
// bits in any value and at any time, leaves a valid state.
func TestHostileReadings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		for range rapid.IntRange(1, 8).Draw(t, "hostile") {
			at := rapid.OneOf(
				rapid.Int64(),
				rapid.Map(steps, func(step int64) int64 { return int64(s.Time) + step }),
			).Draw(t, "time")
			x := Sample{Time: UnixMilli(at), present: rapid.Uint32Max(1<<NumSignals-1).Draw(t, "present")}
			for i := range x.value {
				x.value[i] = math.Float32frombits(rapid.OneOf(
					rapid.Uint32(),
					rapid.SampledFrom([]uint32{0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0xff7fffff, 0x80000000}),
				).Draw(t, "bits"))
			}
			s = fold(t, s, x)
		}
	})
}

// TestNewestOfGroups checks that the newest time of each group is that of its signals, as groupOf
// lists them.
func TestNewestOfGroups(t *testing.T) {
	for g := range Signal(NumSignals) {
		var s State
		s.Latest[g].Time = 7
		want := [numGroups]UnixMilli{}
		want[groupOf[g]] = 7
		if got := s.newest(); got != want {
			t.Errorf("%s: got %v, want %v", g, got, want)
		}
	}
}
