package vehicle_test

import (
	"testing"
	"time"

	"example.org/carstate/internal/vehicle"
)

// Only the last of the trouble codes is one of the throttle system.
func fullSample(tb testing.TB) vehicle.Sample {
	x := vehicle.Sample{Vehicle: "car", Time: vehicle.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))}
	for s := range vehicle.Signal(vehicle.NumSignals) {
		var err error
		switch s {
		case vehicle.DTCList:
			var codes []vehicle.TroubleCode
			for _, c := range []string{"P0300", "P0420", "U0100", "P2135"} {
				code, parseErr := vehicle.ParseTroubleCode(c)
				if parseErr != nil {
					tb.Fatal(parseErr)
				}
				codes = append(codes, code)
			}
			err = x.SetCodes(codes)
		case vehicle.LowVoltageSystemState:
			err = x.SetIgnition(vehicle.IgnitionOn)
		default:
			err = x.Set(s, 1)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
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
			t.Fatal("no answer")
		}
	}); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
	if s.FaultCode.String() != "P2135" || s.Driving().State != vehicle.NormalDriving {
		t.Errorf("code %s, %s", s.FaultCode, s.Driving().State)
	}
}

func TestObserveIgnoresWhatHasNoTime(t *testing.T) {
	for _, at := range []vehicle.UnixMilli{0, -1} {
		x := fullSample(t)
		x.Time = at
		if s := vehicle.Observe(vehicle.State{}, x); s != (vehicle.State{}) {
			t.Errorf("a sample of time %d became %+v", at, s)
		}
	}
}

func BenchmarkFold(b *testing.B) {
	full := fullSample(b)
	typical := vehicle.Sample{Vehicle: "car", Time: full.Time}
	for s, v := range map[vehicle.Signal]float64{vehicle.Speed: 50, vehicle.EngineSpeed: 2000,
		vehicle.ThrottlePosition: 15} {
		if err := typical.Set(s, v); err != nil {
			b.Fatal(err)
		}
	}
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
