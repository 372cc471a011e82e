package vehicle

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// driveStart is when the invented drives below begin.
const driveStart = UnixMilli(1_800_000_000_000)

// at folds one speed and checks the state.
func (s *State) at(t *rapid.T, when UnixMilli, kmh float64) {
	s.folds(t, when, kmh)
	check(t, *s)
}

// folds is like at, but without the check, which takes most of the time. It is for tests that fold
// very many speeds.
func (s *State) folds(t *rapid.T, when UnixMilli, kmh float64) {
	x := Sample{Vehicle: "car", Time: when}
	if err := x.Set(Speed, kmh); err != nil {
		t.Fatal(err)
	}
	*s = Observe(*s, x)
}

// genSpeeds draws speeds as in traffic: several periods, each with a speed limit of its
// own.
func genSpeeds(t *rapid.T) (speeds []float64) {
	for range rapid.IntRange(1, 12).Draw(t, "stretches") {
		top := rapid.SampledFrom([]float64{0.5, 4, 12, 17.5, 25, 50, 120}).Draw(t, "top")
		speeds = append(speeds, rapid.SliceOfN(rapid.Float64Range(0, top), 5, 90).Draw(t, "speeds")...)
	}
	return speeds
}

// TestVerdictStands checks, for reports at any interval and any speeds, when a verdict changes.
// Within a minute of its last change, it may change again only if the share (the travel time in
// light traffic, divided by the present one) is clearly beyond the border of a state. The first
// minute of a drive must never be a jam.
func TestVerdictStands(t *testing.T) {
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
				near := StateOfShare(s.Traffic.Share/clearBy) != s.Pace && StateOfShare(s.Traffic.Share*clearBy) != s.Pace
				if changed != 0 && when.Sub(changed) < time.Minute && near {
					t.Fatalf("%s became %s again after %v, at a share of %g", was, s.Pace, when.Sub(changed),
						s.Traffic.Share)
				}
				changed = when
			}
			when += every
		}
	})
}

// TestFluentIsNormal checks that a car that always drives at 33 to 49 km/h is always normal: 33
// km/h is the free flow that the rules assume for a street. It also checks that a car that always
// drives at 54 to 250 km/h is always normal: 54 km/h is about two thirds of the highest free flow
// that the rules assume.
func TestFluentIsNormal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := rapid.SampledFrom([]*rapid.Generator[float64]{rapid.Float64Range(33, 49),
			rapid.Float64Range(54, 250)}).Draw(t, "road")
		var s State
		when := driveStart
		for _, v := range rapid.SliceOfN(speeds, 1, 200).Draw(t, "speeds") {
			s.at(t, when, v)
			if s.Pace != NormalDriving {
				t.Fatalf("%s at %v km/h", s.Pace, v)
			}
			when += UnixMilli(rapid.Int64Range(1, 60_000).Draw(t, "step"))
		}
	})
}

// TestGapIsOneSample checks that a speed read after a silence of 76 to 599 s moves MeanSpeed towards
// it, but not by more than half a minute of driving at that speed would.
func TestGapIsOneSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		when := driveStart
		for _, v := range genSpeeds(t) {
			s.at(t, when, v)
			when += 1000
		}
		before := s
		when += UnixMilli(rapid.Int64Range(75_000, 598_000).Draw(t, "gap"))
		after := rapid.Float64Range(0, 200).Draw(t, "after")
		s.at(t, when, after)
		if s.Driving().NotDriving || before.Traffic.MeanSeconds < 59 {
			return
		}
		most := 0.4 * math.Abs(after-float64(before.MeanSpeed))
		if got := math.Abs(float64(s.MeanSpeed - before.MeanSpeed)); got > most+0.1 {
			t.Fatalf("a mean of %g km/h became %g after a gap and a speed of %g", before.MeanSpeed, s.MeanSpeed, after)
		}
	})
}

// TestSamplingRate checks that the interval of a car's reports has little influence on the
// verdict. It drives periods of ten minutes, each at a steady pace or in stop and go, and reports
// them every second and at another interval from 0.1 to 60 seconds. At the end of each period the
// verdicts at the two intervals must be the same, and one may have changed at most six minutes
// later than the other. The ignition is on, so that a car that is stationary for long does not
// count as parked.
func TestSamplingRate(t *testing.T) {
	type pace struct {
		speeds []float64 // one a second, in turn
		want   DrivingState
	}
	paces := []pace{
		{[]float64{120}, NormalDriving},
		{[]float64{50, 52, 47, 49}, NormalDriving},
		{[]float64{35, 40, 38, 33, 45}, NormalDriving},
		{[]float64{17, 19, 21, 18, 20}, SlowDriving},
		{[]float64{8, 10, 12, 9}, TrafficJam},
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
					want = TrafficJam // slow in a city is a jam on a motorway
				}
				changed := time.Duration(0)
				for ; at < time.Duration(i+1)*stretch; at += step {
					was := s.Pace
					s.folds(t, driveStart.Add(at), p.speeds[int(at/time.Second)%len(p.speeds)])
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
				t.Fatalf("%v: settled at %v every second, at %v every %v", drawn[i].speeds, changes[0][i],
					changes[1][i], every)
			}
		}
	})
}

// TestRedLightAtAnyInterval checks that a red light of 90 s after a fluent drive is no jam, at
// whatever interval and moments the car reports. If the car reports every 20 s, it must not be
// slow driving either.
func TestRedLightAtAnyInterval(t *testing.T) {
	speed := func(second float64) float64 { // brakes at 7 and sets off at 5.4 km/h a second
		const stops, starts = 180.0, 277.0
		return max(0, min(50, max(50-7*(second-stops), 5.4*(second-starts))))
	}
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Float64Range(0.1, 60).Draw(t, "every")
		var s State
		for at := rapid.Float64Range(0, 1).Draw(t, "phase") * every; at < 360; at += every {
			s.folds(t, driveStart+UnixMilli(1000*at), speed(at))
			if s.Pace == TrafficJam || s.Pace == SlowDriving && every <= 20 {
				t.Fatalf("%s after %.1f s, read every %.1f s", s.Pace, at, every)
			}
		}
	})
}
