package vehicle

import (
	"encoding/binary"
	"math"
	"testing"
)

// FuzzObserve checks that folding any sequence of samples, with hostile values and times, leaves a
// valid state. Each sample is encoded as the time since the previous sample in milliseconds
// (int32), the set of signals that it carries (uint32), then four bytes for each of these signals;
// for a DTCList the four bytes are the digits of one code.
func FuzzObserve(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendSample(nil, 0, 1<<Speed|1<<EngineSpeed, 50, 2000))
	f.Add(appendSample(appendSample(nil, 0, 1<<Speed, 5), 60_000, 1<<Speed|1<<ThrottlePosition, 5, 12))
	f.Add(appendSample(appendSample(nil, 0, 1<<LowVoltageSystemState, 2), 31_000, 1<<OBDSpeed, 40))
	f.Add(appendSample(appendSample(nil, 0, 1<<Speed|1<<EngineSpeed, 0, 0), 300_000, 1<<Speed, 0))
	f.Add(appendSample(nil, 1, 1<<Speed|1<<DTCList, float32(math.NaN()), float32(math.Inf(1))))
	const place = 1<<CurrentLatitude | 1<<CurrentLongitude
	f.Add(appendSample(appendSample(nil, 0, 1<<Speed|place, 50, 44.4, 11.3), 10_000,
		1<<Speed|place|1<<CurrentHeading|1<<CurrentAccuracy, 50, 44.401, 11.3, 0, 5))
	f.Add(appendSample(appendSample(nil, 0, 1<<Speed|place, 100, 10, 179.999), 10_000, 1<<Speed|place, 100, 10,
		-179.998))
	f.Add(appendSample(appendSample(nil, 0, place, 90, 0), 1000, place, float32(math.NaN()), float32(math.Inf(-1))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		at := UnixMilli(1_800_000_000_000)
		for len(b) >= 8 {
			at += UnixMilli(int32(binary.LittleEndian.Uint32(b)))
			x := Sample{Vehicle: "car", Time: at, present: binary.LittleEndian.Uint32(b[4:]) & (1<<NumSignals - 1)}
			b = b[8:]
			for g := range Signal(NumSignals) {
				if !x.Has(g) || len(b) < 4 {
					continue
				}
				x.value[g] = math.Float32frombits(binary.LittleEndian.Uint32(b))
				if g == DTCList {
					x.value[g] = 1
					x.Codes = []TroubleCode{{'P', b[0], b[1], b[2], b[3]}}
				}
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
