package signal_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"example.org/carstate/internal/signal"
)

type limits struct{ min, max float64 }

// ranges has the values that each signal can have.
var ranges = map[signal.Signal]limits{
	signal.Speed: {0, 500}, signal.OBDSpeed: {0, 500}, signal.EngineSpeed: {0, 20000},
	signal.EngineLoad: {0, 100}, signal.ThrottlePosition: {0, 100}, signal.ThrottlePositionB: {0, 100},
	signal.RelativeThrottlePosition: {0, 100}, signal.ThrottleActuator: {0, 100},
	signal.AcceleratorPositionD: {0, 100}, signal.AcceleratorPositionE: {0, 100},
	signal.DTCList: {0, 65535}, signal.MILOn: {0, 1}, signal.LowVoltageSystemState: {1, 5},
	signal.FreeFlowSpeed: {0, 300}, signal.CurrentLatitude: {-90, 90}, signal.CurrentLongitude: {-180, 180},
	signal.CurrentHeading: {0, 360}, signal.CurrentAccuracy: {0, 1e6}, signal.SpeedHolds: {0, 86400},
}

func TestSignalRanges(t *testing.T) {
	if len(ranges) != signal.Num {
		t.Fatalf("got %d signals tested, want %d", len(ranges), signal.Num)
	}
	for s, l := range ranges {
		for _, v := range []float64{l.min, l.max, (l.min + l.max) / 2} {
			var r signal.Readings
			if err := r.Set(s, v); err != nil {
				t.Errorf("%s = %g: got %v, want no error", s, v, err)
			}
			if got, ok := r.Value(s); !ok || got != float32(v) || !r.Has(s) || r.Empty() {
				t.Errorf("%s = %g: got %g, %t; want it back", s, v, got, ok)
			}
		}
		for _, v := range []float64{
			math.NaN(), math.Inf(1), math.Inf(-1), -math.MaxFloat64, math.MaxFloat64,
			math.Nextafter(l.min, math.Inf(-1)), l.min - 1, math.Nextafter(l.max, l.max+1), l.max + 1,
		} {
			var r signal.Readings
			err := r.Set(s, v)
			if !errors.Is(err, signal.ErrImpossible) {
				t.Errorf("%s = %g: %v, want ErrImpossible", s, v, err)
			} else if !strings.Contains(err.Error(), s.String()) || strings.HasSuffix(err.Error(), " ") {
				t.Errorf("%s = %g: got the error %q, want one that names the signal", s, v, err)
			}
			if r.Has(s) || !r.Empty() {
				t.Errorf("%s = %g: got it recorded, want nothing recorded", s, v)
			}
		}
	}
}

func TestSetReported(t *testing.T) {
	for _, tt := range []struct {
		s    signal.Signal
		v    float64
		want float32 // what is recorded, if err is nil
		err  error
	}{
		{signal.Speed, 255, 255, nil},
		{signal.OBDSpeed, 256, 256, nil},
		{signal.Speed, 0xFFFF / 256., 0, signal.ErrNotAvailable},
		{signal.OBDSpeed, 254.996, 0, signal.ErrNotAvailable},
		{signal.Speed, -3.6, 0, signal.ErrNotAvailable},
		{signal.Speed, 501, 0, signal.ErrImpossible},
		{signal.EngineSpeed, 8191.88, 0, signal.ErrNotAvailable},
		{signal.EngineSpeed, 16383.75, 0, signal.ErrNotAvailable},
		{signal.EngineSpeed, 8160, 8160, nil},
		{signal.ThrottlePosition, -0.4, 0, nil},
		{signal.EngineLoad, 100.4, 100, nil},
		{signal.EngineLoad, -1, 0, signal.ErrNotAvailable},
		{signal.AcceleratorPositionE, 105, 100, nil},
		{signal.ThrottlePositionB, 101.6, 0, signal.ErrNotAvailable},
		{signal.ThrottleActuator, 102, 0, signal.ErrNotAvailable},
		{signal.RelativeThrottlePosition, -5.5, 0, signal.ErrImpossible},
		{signal.AcceleratorPositionD, 255, 0, signal.ErrImpossible},
		{signal.CurrentLatitude, 91, 0, signal.ErrNotAvailable},
		{signal.CurrentLongitude, 91, 91, nil},
		{signal.CurrentLongitude, 181, 0, signal.ErrNotAvailable},
		{signal.CurrentHeading, 181, 181, nil},
		{signal.CurrentHeading, 511, 0, signal.ErrNotAvailable},
		{signal.CurrentHeading, -1, 0, signal.ErrNotAvailable},
		{signal.CurrentAccuracy, 102, 102, nil},
		{signal.FreeFlowSpeed, math.NaN(), 0, signal.ErrImpossible},
	} {
		var r signal.Readings
		err := r.SetReported(tt.s, tt.v)
		if got, ok := r.Value(tt.s); got != tt.want || ok != (tt.err == nil) || !errors.Is(err, tt.err) {
			t.Errorf("%s = %g: got %g, %t, %v; want %g, %v", tt.s, tt.v, got, ok, err, tt.want, tt.err)
		}
		if r.DropPosition(); r.Has(tt.s) != (tt.err == nil && !tt.s.IsPosition()) {
			t.Errorf("%s after DropPosition: got %t, want %t", tt.s, r.Has(tt.s), tt.err == nil && !tt.s.IsPosition())
		}
	}
}

func TestSignalNames(t *testing.T) {
	if _, ok := signal.ByName(signal.SpeedHolds.String()); ok {
		t.Errorf("ByName(%s): got a signal, want none that a sender can name", signal.SpeedHolds)
	}
	for s := range signal.SpeedHolds {
		if got, ok := signal.ByName(s.String()); !ok || got != s {
			t.Errorf("ByName(%q): got %v, %t; want it, true", s, got, ok)
		}
		if got, ok := signal.ByName([]byte(s.String())); !ok || got != s {
			t.Errorf("ByName of bytes %q: got %v, %t; want it, true", s, got, ok)
		}
	}
	for _, name := range signal.Names() {
		if _, ok := signal.ByName(name); !ok {
			t.Errorf("ByName(%q): got no signal, want one", name)
		}
	}
	for _, name := range []string{"", "Vehicle", "vehicle.speed", "Vehicle.Speed ", "Vehicle.OBD.ShortTermFuelTrim"} {
		if s, ok := signal.ByName(name); ok {
			t.Errorf("ByName(%q): got %v, want no signal", name, s)
		}
	}
	for s, unit := range map[signal.Signal]string{
		signal.Speed: "km/h", signal.OBDSpeed: "km/h", signal.EngineSpeed: "rpm",
		signal.ThrottlePosition: "percent", signal.MILOn: "",
	} {
		if s.Unit() != unit {
			t.Errorf("%s is in %q, want %q", s, s.Unit(), unit)
		}
	}
}

func TestSetIgnition(t *testing.T) {
	for want, name := range []string{"UNDEFINED", "LOCK", "OFF", "ACC", "ON", "START"} {
		var r signal.Readings
		err := r.SetIgnition(name)
		got, ok := r.Value(signal.LowVoltageSystemState)
		if err != nil || got != float32(want) || ok != (name != "UNDEFINED") {
			t.Errorf("SetIgnition(%q): got %v, %t, error %v; want %v, nil", name, got, ok, err, want)
		}
		i := signal.Ignition(want)
		if i.String() != name || i.On() != (name == "ON" || name == "START") {
			t.Errorf("ignition %d: got %s, on %t; want %s", want, i, i.On(), name)
		}
	}
	var r signal.Readings
	for _, name := range []string{"", "on", "RUN", "ON ", "Ignition(6)"} {
		if err := r.SetIgnition(name); !errors.Is(err, signal.ErrImpossible) || !r.Empty() {
			t.Errorf("SetIgnition(%q): got %v, want %v", name, err, signal.ErrImpossible)
		}
	}
	if got := signal.Ignition(77).String(); got != "Ignition(77)" {
		t.Errorf("an unknown ignition state: got %q, want Ignition(77)", got)
	}
}

func TestSetCodes_Limits(t *testing.T) {
	var r signal.Readings
	if err := r.SetCodes(nil); err != nil || !r.Has(signal.DTCList) {
		t.Errorf("an empty list: got %v, want it recorded", err)
	}
	if err := r.SetCodes(make([]signal.TroubleCode, 65536)); !errors.Is(err, signal.ErrImpossible) {
		t.Errorf("65536 codes: got %v, want %v", err, signal.ErrImpossible)
	}
}
