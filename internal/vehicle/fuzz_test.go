package vehicle_test

import (
	"encoding/binary"
	"math"
	"testing"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// FuzzObserve folds samples with hostile values and times: the time since the previous one in
// milliseconds (int32), the set of signals (uint32), and four bytes for each; of a DTCList, the
// digits of a code.
func FuzzObserve(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendSample(nil, 0, 1<<signal.Speed|1<<signal.EngineSpeed, 50, 2000))
	f.Add(appendSample(appendSample(nil, 0, 1<<signal.Speed, 5), 60_000, 1<<signal.Speed|1<<signal.ThrottlePosition, 5, 12))
	f.Add(appendSample(appendSample(nil, 0, 1<<signal.LowVoltageSystemState, 2), 31_000, 1<<signal.OBDSpeed, 40))
	f.Add(appendSample(appendSample(nil, 0, 1<<signal.Speed|1<<signal.EngineSpeed, 0, 0), 300_000, 1<<signal.Speed, 0))
	f.Add(appendSample(nil, 1, 1<<signal.Speed|1<<signal.DTCList, float32(math.NaN()), float32(math.Inf(1))))
	const place = 1<<signal.CurrentLatitude | 1<<signal.CurrentLongitude
	f.Add(appendSample(appendSample(nil, 0, 1<<signal.Speed|place, 50, 44.4, 11.3), 10_000,
		1<<signal.Speed|place|1<<signal.CurrentHeading|1<<signal.CurrentAccuracy, 50, 44.401, 11.3, 0, 5))
	f.Add(appendSample(appendSample(nil, 0, 1<<signal.Speed|place, 100, 10, 179.999), 10_000, 1<<signal.Speed|place, 100, 10,
		-179.998))
	f.Add(appendSample(appendSample(nil, 0, place, 90, 0), 1000, place, float32(math.NaN()), float32(math.Inf(-1))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s vehicle.State
		at := signal.UnixMilli(1_800_000_000_000)
		for len(b) >= 8 {
			at += signal.UnixMilli(int32(binary.LittleEndian.Uint32(b)))
			x := vehicle.Sample{Vehicle: "car", Time: at}
			present := binary.LittleEndian.Uint32(b[4:])
			b = b[8:]
			for g := range signal.Signal(signal.Num) {
				if present&(1<<g) == 0 || len(b) < 4 {
					continue
				}
				v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
				if g == signal.DTCList {
					v, x.Codes = 1, []signal.TroubleCode{{'P', b[0], b[1], b[2], b[3]}}
				}
				_ = x.Set(g, v) // the sample lacks what is refused
				b = b[4:]
			}
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
