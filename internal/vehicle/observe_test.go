package vehicle_test

import (
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Only the last of the trouble codes is one of the throttle system.
func fullSample(tb testing.TB) vehicle.Sample {
	x := vehicle.Sample{Vehicle: "car", Time: signal.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))}
	for s := range signal.Signal(signal.Num) {
		set(tb, &x, s, 1)
	}
	x.Codes = []signal.TroubleCode{{'P', '0', '3', '0', '0'}, {'U', '0', '1', '0', '0'}, {'P', '2', '1', '3', '5'}}
	set(tb, &x, signal.LowVoltageSystemState, float64(signal.IgnitionOn))
	return x
}

func TestObserveAllocatesNothing(t *testing.T) {
	x := fullSample(t)
	var s vehicle.State
	if n := testing.AllocsPerRun(1000, func() {
		x.Time = x.Time.Add(time.Second)
		s = vehicle.Observe(s, x)
		if s.Driving().At(x.Time, time.Minute) != vehicle.Answered ||
			s.Throttle().At(x.Time, time.Minute) != vehicle.Answered {
			t.Fatal("the verdicts: got no answer, want one")
		}
	}); n != 0 {
		t.Errorf("a sample: got %v allocations, want 0", n)
	}
	if s.ThrottleMemory.FaultCode.String() != "P2135" || s.Driving().State != driving.Normal {
		t.Errorf("got code %s, %s; want P2135, normal", s.ThrottleMemory.FaultCode, s.Driving().State)
	}
}

func TestObserveIgnoresWhatHasNoTime(t *testing.T) {
	for _, at := range []signal.UnixMilli{0, -1} {
		x := fullSample(t)
		x.Time = at
		if s := vehicle.Observe(vehicle.State{}, x); s != (vehicle.State{}) {
			t.Errorf("a sample of time %d: got %+v, want no change", at, s)
		}
	}
}

func BenchmarkFold(b *testing.B) {
	full := fullSample(b)
	typical := vehicle.Sample{Vehicle: "car", Time: full.Time}
	set(b, &typical, signal.Speed, 50)
	set(b, &typical, signal.EngineSpeed, 2000)
	set(b, &typical, signal.ThrottlePosition, 15)
	for name, x := range map[string]vehicle.Sample{"typical": typical, "full": full} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var s vehicle.State
			for b.Loop() {
				x.Time += 1000
				s.Fold(&x)
			}
		})
	}
}
