package vehicle

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// driveStart is when the invented drives below begin.
const driveStart = UnixMilli(1_800_000_000_000)

// at observes one speed.
func (s *State) at(t *rapid.T, when UnixMilli, kmh float64) {
	s.drive(t, when, kmh)
	check(t, *s)
}

// drive is at without the check, which costs more than all else, for tests that
// fold a great many speeds.
func (s *State) drive(t *rapid.T, when UnixMilli, kmh float64) {
	x := Sample{Vehicle: "car", Time: when}
	if err := x.Set(Speed, kmh); err != nil {
		t.Fatal(err)
	}
	*s = Observe(*s, x)
}

// genSpeeds draws speeds as traffic has them: stretches at about one pace.
func genSpeeds(t *rapid.T) (speeds []float64) {
	for range rapid.IntRange(1, 12).Draw(t, "stretches") {
		top := rapid.SampledFrom([]float64{0.5, 4, 12, 17.5, 25, 50, 120}).Draw(t, "top")
		speeds = append(speeds, rapid.SliceOfN(rapid.Float64Range(0, top), 5, 90).Draw(t, "speeds")...)
	}
	return speeds
}

// TestOneChangeAMinute holds at any interval and for any speeds, as does "the
// first minute is never a jam".
func TestOneChangeAMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := UnixMilli(rapid.SampledFrom([]int64{100, 900, 1000, 5000, 30_000, 60_000}).Draw(t, "every"))
		var s State
		when, changed := driveStart, UnixMilli(0)
		for _, v := range genSpeeds(t) {
			was := s.Pace
			s.at(t, when, v)
			if s.Pace == TrafficJam && when.Sub(driveStart) < time.Minute {
				t.Fatalf("a jam after %v", when.Sub(driveStart))
			}
			if was != 0 && s.Pace != was {
				if changed != 0 && when.Sub(changed) < time.Minute {
					t.Fatalf("changed again after %v", when.Sub(changed))
				}
				changed = when
			}
			when += every
		}
	})
}

// TestFluentIsNormal: a car that never falls below 30 km/h is in no jam and not
// slow, whatever else it does.
func TestFluentIsNormal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		when := driveStart
		for _, v := range rapid.SliceOfN(rapid.Float64Range(30, 250), 1, 200).Draw(t, "speeds") {
			s.at(t, when, v)
			if s.Pace != NormalDriving {
				t.Fatalf("%s at %v km/h", s.Pace, v)
			}
			when += UnixMilli(rapid.Int64Range(1, 60_000).Draw(t, "step"))
		}
	})
}

// TestGapIsNoEvidence: a silence of more than 75 seconds adds and takes nothing.
// A verdict that was only held back for its minute may come, and a car that stood
// before and stands after it may turn out to be parked.
func TestGapIsNoEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		when := driveStart
		for _, v := range genSpeeds(t) {
			s.at(t, when, v)
			when += 1000
		}
		before := s
		when += UnixMilli(rapid.Int64Range(75_000, 598_000).Draw(t, "gap"))
		s.at(t, when, rapid.Float64Range(0, 200).Draw(t, "after"))
		if s.Driving().NotDriving {
			return
		}
		if s.Traffic.Evidence != before.Traffic.Evidence || s.Traffic.Sluggish != before.Traffic.Sluggish {
			t.Fatalf("a gap changed %+v to %+v", before.Traffic, s.Traffic)
		}
	})
}

// TestSamplingRate drives stretches of ten minutes, each at a steady pace or in
// stop and go, and has them reported every second and at another interval from
// 0.1 to 60 seconds. The bound: at the end of each stretch the verdict is the
// same, and what it changed to came at most four minutes later or earlier. The
// ignition is on, so that a car which stands for long is not parked.
func TestSamplingRate(t *testing.T) {
	type pace struct {
		speeds []float64 // one a second, in turn
		want   DrivingState
	}
	paces := []pace{
		{[]float64{120}, NormalDriving},
		{[]float64{50, 52, 47, 49}, NormalDriving},
		{[]float64{35, 40, 38, 33, 45}, NormalDriving},
		{[]float64{20, 22, 24, 21, 23}, SlowDriving},
		{[]float64{10, 12, 14, 11}, TrafficJam},
		{[]float64{4, 5, 4.5}, TrafficJam},
		{[]float64{0}, TrafficJam},
		{[]float64{0, 0, 4, 9, 12, 10, 6, 2, 0}, TrafficJam},
	}
	const stretch = 10 * time.Minute
	rapid.Check(t, func(t *rapid.T) {
		drawn := append([]pace{paces[1]}, rapid.SliceOfN(rapid.SampledFrom(paces), 1, 5).Draw(t, "paces")...)
		var changes [2][]time.Duration
		every := time.Duration(rapid.Int64Range(100, 60_000).Draw(t, "every")) * time.Millisecond
		for run, step := range []time.Duration{time.Second, every} {
			var s State
			var on Sample
			on.Time = driveStart
			if err := on.SetIgnition(IgnitionOn); err != nil {
				t.Fatal(err)
			}
			s = Observe(s, on)
			at, motorway := time.Duration(0), false
			for i, p := range drawn {
				want := p.want
				switch {
				case p.want == NormalDriving:
					motorway = p.speeds[0] == 120
				case motorway:
					want = TrafficJam // what is slow in a city is a jam there
				}
				changed := time.Duration(0)
				for ; at < time.Duration(i+1)*stretch; at += step {
					was := s.Pace
					s.drive(t, driveStart.Add(at), p.speeds[int(at/time.Second)%len(p.speeds)])
					if was != 0 && s.Pace != was {
						changed = at
					}
				}
				check(t, s)
				if s.Pace != want {
					t.Fatalf("every %v: %v is %s (%+v, mean %.1f), want %s", step, p.speeds, s.Pace, s.Traffic, s.MeanSpeed, want)
				}
				changes[run] = append(changes[run], changed)
			}
		}
		for i := range changes[0] {
			if late := (changes[1][i] - changes[0][i]).Abs(); late > 4*time.Minute {
				t.Fatalf("%v: settled at %v every second, at %v every %v", drawn[i].speeds, changes[0][i], changes[1][i], every)
			}
		}
	})
}

// TestExactSampling: while a speed changes evenly, it makes no difference into how
// many steps the change is cut. A car that stops or sets off more slowly than cars
// do is taken to have stood for a part of the time instead.
func TestExactSampling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Float64Range(0, 130).Draw(t, "from")
		to := rapid.Float64Range(0, 130).Draw(t, "to")
		seconds := rapid.Float64Range(1, 60).Draw(t, "seconds")
		if (from < float64(standardRules.crawl)) != (to < float64(standardRules.crawl)) {
			seconds = min(seconds, math.Abs(to-from)/rampKmhPerSecond)
		}
		pieces := rapid.IntRange(1, 100).Draw(t, "pieces")
		// In the middle, so that no end of the scale cuts anything off.
		r := standardRules
		r.mostEvidence, r.mostSluggish = 10_000, 10_000
		start := TrafficMemory{Evidence: 5_000, Sluggish: 5_000, UnderWay: true}
		one, many := start, start
		one.collect(&r, float32(from), float32(to), float32(seconds), scale{1, 1, 1})
		v := func(i int) float32 { return float32(from + (to-from)*float64(i)/float64(pieces)) }
		for i := range pieces {
			many.collect(&r, v(i), v(i+1), float32(seconds)/float32(pieces), scale{1, 1, 1})
		}
		// A part below walking pace counts as a stop: at the same rate, for the
		// first minute.
		if d := one.Evidence - many.Evidence; d > 0.1 || d < -0.1 {
			t.Fatalf("%v at once, %v in %d pieces", one.Evidence-5_000, many.Evidence-5_000, pieces)
		}
		if d := one.Sluggish - many.Sluggish; d > 0.1 || d < -0.1 {
			t.Fatalf("sluggish: %v at once, %v in %d pieces", one.Sluggish-5_000, many.Sluggish-5_000, pieces)
		}
	})
}

// TestRedLightAtAnyInterval: a red light of 90 s after a fluent drive is normal, no
// matter how often, and at which moments of it, the car reports.
func TestRedLightAtAnyInterval(t *testing.T) {
	speed := func(second float64) float64 { // brakes at 7 and sets off at 5.4 km/h a second
		const stops, starts = 180.0, 277.0
		return max(0, min(50, max(50-7*(second-stops), 5.4*(second-starts))))
	}
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Float64Range(0.1, 60).Draw(t, "every")
		var s State
		for at := rapid.Float64Range(0, 1).Draw(t, "phase") * every; at < 360; at += every {
			s.drive(t, driveStart+UnixMilli(1000*at), speed(at))
			if s.Pace != NormalDriving {
				t.Fatalf("%s after %.1f s, read every %.1f s", s.Pace, at, every)
			}
		}
	})
}
