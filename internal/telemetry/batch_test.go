package telemetry_test

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

// worst needs the most memory for about n bytes.
func worst(n int) map[string]string {
	fill := func(line string) string {
		return strings.Repeat(line+"\n", min(max(n/(len(line)+1), 1), telemetry.MaxSamples))
	}
	codes := `{"time":1795147200000,"signals":{"Vehicle.OBD.DTCList":[` +
		strings.TrimSuffix(strings.Repeat(`"P0121",`, 255), ",") + `]}}`
	return map[string]string{
		"samples":    fill(`{"time":1795147200000,"signals":{"Vehicle.Speed":1}}`),
		"codes":      fill(codes),
		"both":       fill(`{"time":1795147200000,"signals":{"Vehicle.OBD.DTCList":["P0120"]}}`),
		"one":        `{"vid":"V1","time":1795147201000,"signals":{"Vehicle.Speed":1}}`,
		"rejections": fill("{}"),
	}
}

// A batch does not exceed its growth, and no estimate is too low.
func TestGrowth(t *testing.T) {
	o := telemetry.Origin{Source: &access.Grant{Vehicles: access.AllVehicles()}, Now: signal.At(time.Date(2026, 11, 20, 4, 0, 10, 0, time.UTC)), Vehicle: "V1",
		Forgotten: func(vehicle.ID) bool { return false }, Admit: func(vehicle.ID) bool { return true },
		Verdicts: func(vehicle.ID) (d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) { return d, t }}
	for _, n := range []int{100, 3000, 60_000, telemetry.MaxMapped} {
		for name, message := range worst(n) {
			b, err := telemetry.DecodeMessage(nil, []byte(message), o)
			if err != nil {
				t.Fatalf("%s: got %v, want no error", name, err)
			}
			costs := cap(b.Samples) * int(unsafe.Sizeof(vehicle.Sample{}))
			for i := range b.Samples {
				costs += cap(b.Samples[i].Codes) * int(unsafe.Sizeof(signal.TroubleCode{}))
			}
			if costs > b.Bytes {
				t.Errorf("%s in %d bytes: got an estimate of %d, want the true cost of %d or more",
					name, len(message), b.Bytes, costs)
			}
			if b.Accepted > 0 && b.Bytes > telemetry.Growth*len(message) {
				t.Errorf("%s: got a cost of %d, want at most %d", name, b.Bytes, telemetry.Growth*len(message))
			}
		}
	}
}
