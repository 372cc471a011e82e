package vehicle_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"example.org/carstate/internal/vehicle"
)

type limits struct{ min, max float64 }

// ranges has the values that each signal can have.
var ranges = map[vehicle.Signal]limits{
	vehicle.Speed: {0, 500}, vehicle.OBDSpeed: {0, 500}, vehicle.EngineSpeed: {0, 20000},
	vehicle.EngineLoad: {0, 100}, vehicle.ThrottlePosition: {0, 100}, vehicle.ThrottlePositionB: {0, 100},
	vehicle.RelativeThrottlePosition: {0, 100}, vehicle.ThrottleActuator: {0, 100},
	vehicle.AcceleratorPositionD: {0, 100}, vehicle.AcceleratorPositionE: {0, 100},
	vehicle.DTCList: {0, 65535}, vehicle.MILOn: {0, 1}, vehicle.LowVoltageSystemState: {1, 5},
	vehicle.FreeFlowSpeed: {0, 300}, vehicle.CurrentLatitude: {-90, 90}, vehicle.CurrentLongitude: {-180, 180},
	vehicle.CurrentHeading: {0, 360}, vehicle.CurrentAccuracy: {0, 1e6}, vehicle.SpeedHolds: {0, 86400},
}

func TestSignalRanges(t *testing.T) {
	if len(ranges) != vehicle.NumSignals {
		t.Fatalf("got %d signals tested, want %d", len(ranges), vehicle.NumSignals)
	}
	for s, l := range ranges {
		for _, v := range []float64{l.min, l.max, (l.min + l.max) / 2} {
			var r vehicle.Readings
			if err := r.Set(s, v); err != nil {
				t.Errorf("%s = %g: %v", s, v, err)
			}
			if got, ok := r.Value(s); !ok || got != float32(v) || !r.Has(s) || r.Empty() {
				t.Errorf("%s = %g reads back as %g, %v", s, v, got, ok)
			}
		}
		for _, v := range []float64{
			math.NaN(), math.Inf(1), math.Inf(-1), -math.MaxFloat64, math.MaxFloat64,
			math.Nextafter(l.min, math.Inf(-1)), l.min - 1, math.Nextafter(l.max, l.max+1), l.max + 1,
		} {
			var r vehicle.Readings
			err := r.Set(s, v)
			if !errors.Is(err, vehicle.ErrImpossible) {
				t.Errorf("%s = %g: %v, want ErrImpossible", s, v, err)
			} else if !strings.Contains(err.Error(), s.String()) || strings.HasSuffix(err.Error(), " ") {
				t.Errorf("%s = %g: unhelpful error %q", s, v, err)
			}
			if r.Has(s) || !r.Empty() {
				t.Errorf("%s = %g is refused, yet recorded", s, v)
			}
		}
	}
}

func TestSetReported(t *testing.T) {
	for _, tt := range []struct {
		s    vehicle.Signal
		v    float64
		want float32 // what is recorded, if err is nil
		err  error
	}{
		{vehicle.Speed, 255, 255, nil},
		{vehicle.OBDSpeed, 256, 256, nil},
		{vehicle.Speed, 0xFFFF / 256., 0, vehicle.ErrNotAvailable},
		{vehicle.OBDSpeed, 254.996, 0, vehicle.ErrNotAvailable},
		{vehicle.Speed, -3.6, 0, vehicle.ErrNotAvailable},
		{vehicle.Speed, 501, 0, vehicle.ErrImpossible},
		{vehicle.EngineSpeed, 8191.88, 0, vehicle.ErrNotAvailable},
		{vehicle.EngineSpeed, 16383.75, 0, vehicle.ErrNotAvailable},
		{vehicle.EngineSpeed, 8160, 8160, nil},
		{vehicle.ThrottlePosition, -0.4, 0, nil},
		{vehicle.EngineLoad, 100.4, 100, nil},
		{vehicle.EngineLoad, -1, 0, vehicle.ErrNotAvailable},
		{vehicle.AcceleratorPositionE, 105, 100, nil},
		{vehicle.ThrottlePositionB, 101.6, 0, vehicle.ErrNotAvailable},
		{vehicle.ThrottleActuator, 102, 0, vehicle.ErrNotAvailable},
		{vehicle.RelativeThrottlePosition, -5.5, 0, vehicle.ErrImpossible},
		{vehicle.AcceleratorPositionD, 255, 0, vehicle.ErrImpossible},
		{vehicle.CurrentLatitude, 91, 0, vehicle.ErrNotAvailable},
		{vehicle.CurrentLongitude, 91, 91, nil},
		{vehicle.CurrentLongitude, 181, 0, vehicle.ErrNotAvailable},
		{vehicle.CurrentHeading, 181, 181, nil},
		{vehicle.CurrentHeading, 511, 0, vehicle.ErrNotAvailable},
		{vehicle.CurrentHeading, -1, 0, vehicle.ErrNotAvailable},
		{vehicle.CurrentAccuracy, 102, 102, nil},
		{vehicle.FreeFlowSpeed, math.NaN(), 0, vehicle.ErrImpossible},
	} {
		var r vehicle.Readings
		err := r.SetReported(tt.s, tt.v)
		if got, ok := r.Value(tt.s); got != tt.want || ok != (tt.err == nil) || !errors.Is(err, tt.err) {
			t.Errorf("%s = %g: got %g, %t, %v; want %g, %v", tt.s, tt.v, got, ok, err, tt.want, tt.err)
		}
		if r.Clear(tt.s); !r.Empty() {
			t.Errorf("%s is there after Clear", tt.s)
		}
	}
}

func TestSignalNames(t *testing.T) {
	if _, ok := vehicle.SignalByName(vehicle.SpeedHolds.String()); ok {
		t.Errorf("a sender can name %s", vehicle.SpeedHolds)
	}
	for s := range vehicle.SpeedHolds {
		if got, ok := vehicle.SignalByName(s.String()); !ok || got != s {
			t.Errorf("SignalByName(%q) = %v, %v", s, got, ok)
		}
		if got, ok := vehicle.SignalByName([]byte(s.String())); !ok || got != s {
			t.Errorf("SignalByName of bytes %q = %v, %v", s, got, ok)
		}
	}
	for _, name := range vehicle.SignalNames() {
		if _, ok := vehicle.SignalByName(name); !ok {
			t.Errorf("SignalByName does not know %s", name)
		}
	}
	for _, name := range []string{"", "Vehicle", "vehicle.speed", "Vehicle.Speed ", "Vehicle.OBD.ShortTermFuelTrim"} {
		if s, ok := vehicle.SignalByName(name); ok {
			t.Errorf("SignalByName(%q) = %v", name, s)
		}
	}
	if got := vehicle.Signal(200).String(); got != "Signal(200)" {
		t.Errorf("an unknown signal calls itself %q", got)
	}
	for s, unit := range map[vehicle.Signal]string{
		vehicle.Speed: "km/h", vehicle.OBDSpeed: "km/h", vehicle.EngineSpeed: "rpm",
		vehicle.ThrottlePosition: "percent", vehicle.MILOn: "",
	} {
		if s.Unit() != unit {
			t.Errorf("%s is in %q, want %q", s, s.Unit(), unit)
		}
	}
}

func TestSignalByNameAllocatesNothing(t *testing.T) {
	known, unknown := []byte("Vehicle.OBD.RelativeThrottlePosition"),
		[]byte("Vehicle.Cabin.Door.Row1.DriverSide.IsOpen")
	if n := testing.AllocsPerRun(100, func() {
		vehicle.SignalByName(known)
		vehicle.SignalByName(unknown)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseIgnition(t *testing.T) {
	for name, on := range map[string]bool{"UNDEFINED": false, "LOCK": false, "OFF": false, "ACC": false, "ON": true,
		"START": true} {
		i, err := vehicle.ParseIgnition(name)
		if err != nil || i.String() != name || i.On() != on {
			t.Errorf("ParseIgnition(%q) = %s, on %v, %v", name, i, i.On(), err)
		}
		var r vehicle.Readings
		if err := r.SetIgnition(i); err != nil {
			t.Errorf("SetIgnition(%s): %v", i, err)
		}
		if got, want := r.Has(vehicle.LowVoltageSystemState), i != vehicle.IgnitionUndefined; got != want {
			t.Errorf("SetIgnition(%s) recorded = %v, want %v", i, got, want)
		}
	}
	for _, name := range []string{"", "on", "RUN", "ON "} {
		if i, err := vehicle.ParseIgnition(name); !errors.Is(err, vehicle.ErrImpossible) {
			t.Errorf("ParseIgnition(%q) = %s, %v", name, i, err)
		}
	}
	var r vehicle.Readings
	if err := r.SetIgnition(vehicle.Ignition(6)); !errors.Is(err, vehicle.ErrImpossible) {
		t.Errorf("an ignition state that VSS lacks: %v", err)
	}
	if got := vehicle.Ignition(77).String(); got != "Ignition(77)" {
		t.Errorf("an unknown ignition state calls itself %q", got)
	}
}

func TestSetCodes_Limits(t *testing.T) {
	var r vehicle.Readings
	if err := r.SetCodes(nil); err != nil || !r.Has(vehicle.DTCList) {
		t.Errorf("an empty list is a reading too: %v", err)
	}
	if err := r.SetCodes(make([]vehicle.TroubleCode, 65536)); !errors.Is(err, vehicle.ErrImpossible) {
		t.Errorf("65536 codes: %v", err)
	}
}
