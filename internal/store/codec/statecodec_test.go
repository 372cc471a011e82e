package codec_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

var updateGolden = flag.Bool("update", false, "rewrite testdata/state.json; only before version 1 is released")

// testdata holds a state in which every field is set. Fields that were added later are zero. A
// change that breaks this test needs a new schema version.
func TestStateOfThisVersion(t *testing.T) {
	const file = "testdata/state.json"
	var golden struct {
		Packed []byte        `json:"packed"` // base64
		State  vehicle.State `json:"state"`
	}
	if *updateGolden {
		golden.State = roadtest.State(t)
		golden.State.ThrottleMemory.FaultCode = signal.TroubleCode{'P', '0', '1', '2', '0'}
		golden.Packed = codec.AppendState(nil, &golden.State)
		text, err := json.Marshal(golden)
		testkit.NoError(t, err)
		testkit.NoError(t, os.WriteFile(file, append(text, '\n'), 0o600))
	}
	text, err := os.ReadFile(file)
	testkit.NoError(t, err)
	testkit.NoError(t, json.Unmarshal(text, &golden))
	got, err := codec.DecodeState(golden.Packed)
	if err != nil || got != golden.State || got.ThrottleMemory == (throttle.Memory{}) || got.Way.Count == 0 {
		t.Errorf("error %v; got\n%+v, want\n%+v", err, got, golden.State)
	}
}

func BenchmarkState(b *testing.B) {
	s := roadtest.State(b)
	var packed []byte
	for b.Loop() {
		packed = codec.AppendState(packed[:0], &s)
		if _, err := codec.DecodeState(packed); err != nil {
			b.Fatalf("DecodeState: got %v, want no error", err)
		}
	}
	b.ReportMetric(float64(len(packed)), "bytes")
}
