package road_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func inBounds(t interface{ Fatalf(string, ...any) }, s *vehicle.State) {
	w, a := &s.Way, &s.Road
	finite := func(all ...float32) bool {
		for _, v := range all {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return false
			}
		}
		return true
	}
	if w.Count > driving.WaySteps || w.Octant >= road.Octants || w.Time > s.Time || w.Time < 0 ||
		!finite(w.Latitude, w.Longitude, w.AnchorLatitude, w.AnchorLongitude, w.SpeedKmh) || w.Count > 0 && !w.Heading {
		t.Fatalf("the way: got %+v, want it in bounds", w)
	}
	for i, x := range w.Steps {
		if used := i < int(w.Count); used != road.Valid(x.Stretch) || !finite(x.Metres, x.Seconds) || x.Metres < 0 ||
			x.Seconds < 0 || !used && x != (driving.WayStep{}) {
			t.Fatalf("step %d of %d: got %+v, want it in bounds", i, w.Count, x)
		}
	}
	if !finite(a.FreeSecondsBehind, a.FreeSecondsAhead, a.DelayBehind, a.DelayAhead, a.ShownBehind, a.FreeKmh) ||
		a.FreeSecondsBehind < 0 || a.FreeSecondsAhead < 0 || a.DelayBehind < 0 || a.DelayAhead < 0 || a.FreeKmh < 0 ||
		a.FreeKmh > 301 || a.Time > s.Time {
		t.Fatalf("the road: got %+v, want it in bounds", a)
	}
	if m := s.Traffic; !finite(m.Share, m.FreeKmh, s.MeanSpeed) || m.Share < 0 {
		t.Fatalf("the traffic: got %+v, want it in bounds", m)
	}
}

func TestObserve_DropsBadFixes(t *testing.T) {
	half := func(g signal.Signal, degrees func(*car) float64) func(*car, *vehicle.Sample) {
		return func(c *car, x *vehicle.Sample) {
			*x = c.sample(t, 44)
			set(t, x, g, degrees(c))
			c.report(*x)
			x.Time = x.Time.Add(step)
		}
	}
	for _, c := range []struct {
		why   road.Dropped
		spoil func(*car, *vehicle.Sample)
	}{
		{road.Incomplete, half(signal.CurrentLatitude, func(c *car) float64 { return c.latitude })},
		{road.Incomplete, half(signal.CurrentLongitude, func(c *car) float64 { return c.longitude })},
		{road.Frozen, func(c *car, x *vehicle.Sample) {
			set(t, x, signal.CurrentLatitude, float64(c.state.Way.Latitude))
			set(t, x, signal.CurrentLongitude, float64(c.state.Way.Longitude))
		}},
		{road.NullIsland, func(_ *car, x *vehicle.Sample) {
			set(t, x, signal.CurrentLatitude, 0)
			set(t, x, signal.CurrentLongitude, 0)
		}},
		{road.Inaccurate, func(_ *car, x *vehicle.Sample) { set(t, x, signal.CurrentAccuracy, 50.1) }},
		{road.Jump, func(c *car, x *vehicle.Sample) { set(t, x, signal.CurrentLatitude, c.latitude+0.01) }},
	} {
		t.Run(c.why.String(), func(t *testing.T) {
			var m road.Map
			x := newCar(&m, "car", 0, 0, start)
			x.drive(t, 40, 90, time.Minute)
			was, known := x.state, m.Len()
			x.at = x.at.Add(step)
			y := x.fix(t, 44)
			c.spoil(x, &y)
			x.report(y)
			for why := range road.NumDropped {
				if n := m.Dropped[why].Load(); n != 0 != (why == c.why) {
					t.Errorf("fixes dropped as %s: got %d, want some: %t", why, n, why == c.why)
				}
			}
			if c.why == road.Frozen {
				was.Way.SpeedKmh = -1
			}
			if x.state.Way != was.Way || x.state.Road != was.Road || m.Len() != known {
				t.Errorf("the car: got it moved to %+v, want it at %+v", x.state.Way, was.Way)
			}
			if speed := x.state.Latest[signal.Speed]; speed.Time != y.Time || speed.Value != 44 ||
				x.state.MeanSpeed == was.MeanSpeed {
				t.Errorf("the speed of the same sample: got %+v, want 44 at %d", speed, y.Time)
			}
		})
	}
}

func TestFixAtTheLimit(t *testing.T) {
	var m road.Map
	c := newCar(&m, "car", 0, 0, start)
	c.drive(t, 40, 0, step)
	c.at = c.at.Add(step)
	c.move(0, 100+step.Seconds()*300/3.6-2)
	x := c.fix(t, 40)
	set(t, &x, signal.CurrentAccuracy, 50)
	c.report(x)
	if c.state.Way.Time != c.at {
		t.Errorf("the last fix: got one %v old, want 0s", c.at.Sub(c.state.Way.Time))
	}
}

// A wrong fix on the other side of the earth costs a car minutes of its way, not the hours of a
// drive back at 300 km/h.
func TestWrongFirstFix(t *testing.T) {
	var m road.Map
	c := newCarAt(&m, "car", -40, -170, start)
	c.drive(t, 40, 0, step)
	c.latitude, c.longitude = townLatitude, townLongitude
	c.drive(t, 40, 90, 5*time.Minute)
	if m.Dropped[road.Jump].Load() == 0 || c.state.Way.Count != 0 {
		t.Errorf("got %d jumps and the way %+v, want some and none", m.Dropped[road.Jump].Load(), c.state.Way)
	}
	c.drive(t, 40, 90, 10*time.Second)
	if c.state.Way.Time != c.at || c.state.Way.Count == 0 {
		t.Errorf("the last fix that counted: got one %v old, want 0s and a way", c.at.Sub(c.state.Way.Time))
	}
}

// The receiver of a stationary car has a noise of 4 m.
func (c *car) wait(t testing.TB, random *rand.Rand) {
	t.Helper()
	latitude, longitude := c.latitude, c.longitude
	c.move(4*random.NormFloat64(), 4*random.NormFloat64())
	c.at = c.at.Add(step)
	c.report(c.fix(t, 0))
	c.latitude, c.longitude = latitude, longitude
}

func checkMap(t interface{ Fatalf(string, ...any) }, m *road.Map, at signal.UnixMilli) {
	m.ConditionsIn(road.World, at, func(c road.Condition) {
		if !road.Valid(c.Stretch) || c.State > driving.Jam || c.Cars < 0 ||
			!(c.SpeedKmh >= 0 && c.SpeedKmh < 301) || !(c.FreeKmh >= 0 && c.FreeKmh < 301) ||
			c.FreeKmh != 0 && c.FreeKmh < 10-0.01 || (c.Cars == 0) != (c.SpeedKmh == 0) {
			t.Fatalf("the condition: got %+v, want it in bounds", c)
		}
	})
}
