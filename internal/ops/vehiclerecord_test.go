package ops_test

import (
	"slices"
	"testing"

	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
)

func TestFact_InWords(t *testing.T) {
	limit := func(f float64) *float64 { return &f }
	v := ops.VerdictRecord{Facts: []ops.FactRecord{
		{Name: signal.LowVoltageSystemState.String(), Value: float64(signal.IgnitionOff)},
		{Name: signal.MILOn.String(), Value: 1},
		{Name: "time since the drive began", Value: 852, Unit: "s", Threshold: limit(60), Limit: "may be a jam from"},
		{Name: throttle.Evidence + "plate sensor A moves by itself", Value: 4.3, Unit: "percent", Threshold: limit(100),
			Limit: throttle.AnomalyFrom},
		{Name: "time that plate sensor A stood still", Unit: "s", Threshold: limit(30), Limit: throttle.AnomalyFrom},
	}}
	var got []string
	for _, f := range v.Telling() {
		got = append(got, f.Name+" "+f.InWords()+" "+f.LimitInWords())
	}
	want := []string{"Vehicle.LowVoltageSystemState OFF ", "Vehicle.OBD.Status.IsMILOn on ",
		"time since the drive began 14 min may be a jam from 60 s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := v.Silent(); got != 2 {
		t.Errorf("facts that are not shown: got %d, want 2", got)
	}
}
