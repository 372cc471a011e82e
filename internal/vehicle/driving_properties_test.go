//go:build !race

package vehicle_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const driveStart = signal.UnixMilli(1_800_000_000_000)

func folds(t *rapid.T, s *vehicle.State, when signal.UnixMilli, kmh float64) {
	x := vehicle.Sample{Vehicle: "car", Time: when}
	set(t, &x, signal.Speed, kmh)
	*s = vehicle.Observe(*s, x)
}

// genSpeeds draws speeds in several periods, each with a limit of its own.
func genSpeeds(t *rapid.T) (speeds []float64) {
	for range rapid.IntRange(1, 12).Draw(t, "stretches") {
		top := rapid.SampledFrom([]float64{0.5, 4, 12, 17.5, 25, 50, 120}).Draw(t, "top")
		speeds = append(speeds, rapid.SliceOfN(rapid.Float64Range(0, top), 5, 90).Draw(t, "speeds")...)
	}
	return speeds
}

// TestVerdictStands checks that within a minute of its last change, a verdict changes only if the
// share is clearly beyond a border, and that the first minute of a drive is never a jam.
func TestVerdictStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := signal.UnixMilli(rapid.SampledFrom([]int64{100, 900, 1000, 5000, 30_000, 60_000}).Draw(t, "every"))
		var s vehicle.State
		when, changed := driveStart, signal.UnixMilli(0)
		for _, v := range genSpeeds(t) {
			was := s.Pace
			folds(t, &s, when, v)
			check(t, s)
			if s.Pace == driving.Jam && when.Sub(driveStart) < time.Minute {
				t.Fatalf("the jam: got it after %v, want it after 1m or later", when.Sub(driveStart))
			}
			if was != 0 && s.Pace != was {
				near := driving.StateOfShare(s.Traffic.Share/1.03) != s.Pace && driving.StateOfShare(s.Traffic.Share*1.03) != s.Pace
				if changed != 0 && when.Sub(changed) < time.Minute && near {
					t.Fatalf("%s, then %s: got it after %v, want it after 1m or later, at a share of %g", was, s.Pace,
						when.Sub(changed), s.Traffic.Share)
				}
				changed = when
			}
			when += every
		}
	})
}

// TestFluentIsNormal checks that speeds above the free flow of a street (33 km/h), or above two
// thirds of the highest that is assumed (54 km/h), are always normal.
func TestFluentIsNormal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := rapid.SampledFrom([]*rapid.Generator[float64]{rapid.Float64Range(33, 49),
			rapid.Float64Range(54, 250)}).Draw(t, "road")
		var s vehicle.State
		when := driveStart
		for _, v := range rapid.SliceOfN(speeds, 1, 200).Draw(t, "speeds") {
			folds(t, &s, when, v)
			check(t, s)
			if s.Pace != driving.Normal {
				t.Fatalf("%v km/h: got %s, want %s", v, s.Pace, driving.Normal)
			}
			when += signal.UnixMilli(rapid.Int64Range(1, 60_000).Draw(t, "step"))
		}
	})
}

// TestGapIsOneSample checks that a speed after a silence of 76 to 599 s moves the mean by at most
// half a minute of driving.
func TestGapIsOneSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s vehicle.State
		when := driveStart
		for _, v := range genSpeeds(t) {
			folds(t, &s, when, v)
			check(t, s)
			when += 1000
		}
		before := s
		when += signal.UnixMilli(rapid.Int64Range(75_000, 598_000).Draw(t, "gap"))
		after := rapid.Float64Range(0, 200).Draw(t, "after")
		folds(t, &s, when, after)
		check(t, s)
		if s.Driving().NotDriving || before.Traffic.MeanSeconds < 59 {
			return
		}
		most := 0.4 * math.Abs(after-float64(before.MeanSpeed))
		if got := math.Abs(float64(s.MeanSpeed - before.MeanSpeed)); got > most+0.1 {
			t.Fatalf("a mean of %g, then %g: got it changed by %g, want %g", before.MeanSpeed, after, got, most+0.1)
		}
	})
}

// Periods of ten minutes, reported every second and at another interval, end with the same verdicts,
// which changed at most six minutes apart. The ignition is on, so that no car counts as parked.
func TestSamplingRate(t *testing.T) {
	type pace struct {
		speeds []float64 // one a second, in turn
		want   driving.State
	}
	paces := []pace{
		{[]float64{120}, driving.Normal},
		{[]float64{50, 52, 47, 49}, driving.Normal},
		{[]float64{35, 40, 38, 33, 45}, driving.Normal},
		{[]float64{17, 19, 21, 18, 20}, driving.Slow},
		{[]float64{8, 10, 12, 9}, driving.Jam},
		{[]float64{4, 5, 4.5}, driving.Jam},
		{[]float64{0}, driving.Jam},
		{[]float64{0, 0, 4, 9, 12, 10, 6, 2, 0}, driving.Jam},
	}
	const stretch = 10 * time.Minute
	rapid.Check(t, func(t *rapid.T) {
		drawn := append([]pace{paces[1]}, rapid.SliceOfN(rapid.SampledFrom(paces), 1, 5).Draw(t, "paces")...)
		var changes [2][]time.Duration
		every := time.Duration(rapid.Int64Range(100, 60_000).Draw(t, "every")) * time.Millisecond
		for run, step := range []time.Duration{time.Second, every} {
			var s vehicle.State
			var on vehicle.Sample
			on.Time = driveStart
			set(t, &on, signal.LowVoltageSystemState, float64(signal.IgnitionOn))
			s = vehicle.Observe(s, on)
			at, motorway := time.Duration(0), false
			for i, p := range drawn {
				want := p.want
				switch {
				case p.want == driving.Normal:
					motorway = p.speeds[0] == 120
				case motorway:
					want = driving.Jam // slow in a city is a jam on a motorway
				}
				changed := time.Duration(0)
				for ; at < time.Duration(i+1)*stretch; at += step {
					was := s.Pace
					folds(t, &s, driveStart.Add(at), p.speeds[int(at/time.Second)%len(p.speeds)])
					if was != 0 && s.Pace != was {
						changed = at
					}
				}
				check(t, s)
				if s.Pace != want {
					t.Fatalf("every %v: %v is %s (%+v, mean %.1f), want %s", step, p.speeds, s.Pace, s.Traffic,
						s.MeanSpeed, want)
				}
				changes[run] = append(changes[run], changed)
			}
		}
		for i := range changes[0] {
			if late := (changes[1][i] - changes[0][i]).Abs(); late > 6*time.Minute {
				t.Fatalf("%v: got it settled at %v every %v, want it within 6m of %v", drawn[i].speeds, changes[1][i],
					every, changes[0][i])
			}
		}
	})
}

// TestRedLightAtAnyInterval checks that a red light of 90 s after a fluent drive is no jam, and if
// the car reports every 20 s, not slow either.
func TestRedLightAtAnyInterval(t *testing.T) {
	speed := func(second float64) float64 { // brakes at 7 and sets off at 5.4 km/h a second
		const stops, starts = 180.0, 277.0
		return max(0, min(50, max(50-7*(second-stops), 5.4*(second-starts))))
	}
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Float64Range(0.1, 60).Draw(t, "every")
		var s vehicle.State
		for at := rapid.Float64Range(0, 1).Draw(t, "phase") * every; at < 360; at += every {
			folds(t, &s, driveStart+signal.UnixMilli(1000*at), speed(at))
			if s.Pace == driving.Jam || s.Pace == driving.Slow && every <= 20 {
				t.Fatalf("after %.1f s, every %.1f s: got %s, want no jam, slow only over 20 s", at, every, s.Pace)
			}
		}
	})
}

func genSample(t *rapid.T, s vehicle.State) vehicle.Sample {
	at := max(s.Time, 1_800_000_000_000) + signal.UnixMilli(steps.Draw(t, "step"))
	return vehicle.Sample{Vehicle: "car", Time: at, Readings: genReadings(t)}
}

// TestRepeatedTailChangesNothing checks at-least-once delivery.
func TestRepeatedTailChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		var seen []vehicle.Sample
		for range rapid.IntRange(1, 8).Draw(t, "tail") {
			x := genSample(t, s)
			seen = append(seen, x)
			s = vehicle.Observe(s, x)
		}
		again := s
		for _, x := range seen[rapid.IntRange(0, len(seen)-1).Draw(t, "from"):] {
			again = vehicle.Observe(again, x)
		}
		if again != s {
			t.Fatalf("the samples again: got %+v, want %+v", again, s)
		}
	})
}

func TestOlderSampleChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		older := s.Time - signal.UnixMilli(rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "older"))
		fold(t, s, vehicle.Sample{Vehicle: "car", Time: older, Readings: genReadings(t)})
	})
}

// The signals of one sample are folded one by one, in two orders. The readings and the throttle
// verdict are the same; with at most one of the two speeds, also whether the car is driving; and with
// at most one of the signals that the driving rule compares, the whole state.
func TestSplitSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genState(t)
		x := genSample(t, s)
		x.Time++ // every signal is used
		var pieces []vehicle.Sample
		for g := range signal.Signal(signal.Num) {
			if v, ok := x.Value(g); ok {
				p := vehicle.Sample{Vehicle: x.Vehicle, Time: x.Time}
				set(t, &p, g, float64(v))
				if g == signal.DTCList {
					p.Codes = x.Codes
				}
				pieces = append(pieces, p)
			}
		}
		one, other := s, s
		for _, p := range pieces {
			one = vehicle.Observe(one, p)
		}
		for _, p := range rapid.Permutation(pieces).Draw(t, "order") {
			other = vehicle.Observe(other, p)
		}
		check(t, one)
		check(t, other)

		for g := range signal.Signal(signal.Num) {
			if g != signal.LowVoltageSystemState && one.Latest[g] != other.Latest[g] {
				t.Fatalf("%s: got %+v and %+v, want the same", g, one.Latest[g], other.Latest[g])
			}
		}
		if one.Throttle() != other.Throttle() {
			t.Fatalf("throttle: got %+v and %+v, want the same", one.Throttle(), other.Throttle())
		}
		speeds := count(x, signal.Speed, signal.OBDSpeed)
		d, e := one.Driving(), other.Driving()
		if speeds <= 1 && (d.NotDriving != e.NotDriving || d.Time != e.Time) {
			t.Fatalf("driving: got %+v and %+v, want the same", d, e)
		}
		if speeds+count(x, signal.EngineSpeed, signal.LowVoltageSystemState, signal.FreeFlowSpeed) <= 1 && one != other {
			t.Fatalf("the states: got %+v and %+v, want the same", one, other)
		}
	})
}

func count(x vehicle.Sample, signals ...signal.Signal) (n int) {
	for _, g := range signals {
		if x.Has(g) {
			n++
		}
	}
	return n
}
