package vehicle_test

import (
	"encoding/binary"
	"math"
	"testing"

	"example.org/carstate/internal/vehicle"
)

// FuzzObserve folds samples with hostile values and times: the time since the previous one in
// milliseconds (int32), the set of signals (uint32), and four bytes for each; of a DTCList, the
// digits of a code.
func FuzzObserve(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendSample(nil, 0, 1<<vehicle.Speed|1<<vehicle.EngineSpeed, 50, 2000))
	f.Add(appendSample(appendSample(nil, 0, 1<<vehicle.Speed, 5), 60_000, 1<<vehicle.Speed|1<<vehicle.ThrottlePosition, 5, 12))
	f.Add(appendSample(appendSample(nil, 0, 1<<vehicle.LowVoltageSystemState, 2), 31_000, 1<<vehicle.OBDSpeed, 40))
	f.Add(appendSample(appendSample(nil, 0, 1<<vehicle.Speed|1<<vehicle.EngineSpeed, 0, 0), 300_000, 1<<vehicle.Speed, 0))
	f.Add(appendSample(nil, 1, 1<<vehicle.Speed|1<<vehicle.DTCList, float32(math.NaN()), float32(math.Inf(1))))
	const place = 1<<vehicle.CurrentLatitude | 1<<vehicle.CurrentLongitude
	f.Add(appendSample(appendSample(nil, 0, 1<<vehicle.Speed|place, 50, 44.4, 11.3), 10_000,
		1<<vehicle.Speed|place|1<<vehicle.CurrentHeading|1<<vehicle.CurrentAccuracy, 50, 44.401, 11.3, 0, 5))
	f.Add(appendSample(appendSample(nil, 0, 1<<vehicle.Speed|place, 100, 10, 179.999), 10_000, 1<<vehicle.Speed|place, 100, 10,
		-179.998))
	f.Add(appendSample(appendSample(nil, 0, place, 90, 0), 1000, place, float32(math.NaN()), float32(math.Inf(-1))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s vehicle.State
		at := vehicle.UnixMilli(1_800_000_000_000)
		for len(b) >= 8 {
			at += vehicle.UnixMilli(int32(binary.LittleEndian.Uint32(b)))
			var value [vehicle.NumSignals]float32
			var codes []vehicle.TroubleCode
			present := binary.LittleEndian.Uint32(b[4:]) & (1<<vehicle.NumSignals - 1)
			b = b[8:]
			for g := range value {
				if present&(1<<g) == 0 || len(b) < 4 {
					continue
				}
				value[g] = math.Float32frombits(binary.LittleEndian.Uint32(b))
				if vehicle.Signal(g) == vehicle.DTCList {
					value[g] = 1
					codes = []vehicle.TroubleCode{{'P', b[0], b[1], b[2], b[3]}}
				}
				b = b[4:]
			}
			x := vehicle.Sample{Vehicle: "car", Time: at, Readings: vehicle.RawReadings(present, value)}
			x.Codes = codes
			s = fold(t, s, x)
		}
	})
}

func appendSample(b []byte, stepMillis int32, present uint32, values ...float32) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(stepMillis))
	b = binary.LittleEndian.AppendUint32(b, present)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
