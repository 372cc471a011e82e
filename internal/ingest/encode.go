package ingest

import (
	"strconv"

	"example.org/carstate/internal/vehicle"
)

// AppendJSON appends a line of NDJSON that this package decodes.
func AppendJSON(b []byte, x *vehicle.Sample) []byte {
	b = append(b, `{"vid":"`...)
	b = append(b, x.Vehicle...)
	b = append(b, `","time":`...)
	b = strconv.AppendInt(b, int64(x.Time), 10)
	b = append(b, `,"signals":{`...)
	first := true
	for s := range vehicle.Signal(vehicle.NumSignals) {
		v, ok := x.Value(s)
		if !ok {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, s.String()...)
		b = append(b, `":`...)
		b = appendValue(b, s, v, x.Codes)
	}
	return append(b, "}}\n"...)
}

func appendValue(b []byte, s vehicle.Signal, v float32, codes []vehicle.TroubleCode) []byte {
	switch s {
	case vehicle.DTCList:
		b = append(b, '[')
		for i, c := range codes {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, '"'), c[:]...), '"')
		}
		return append(b, ']')
	case vehicle.MILOn:
		return strconv.AppendBool(b, v != 0)
	case vehicle.LowVoltageSystemState:
		return append(append(append(b, '"'), vehicle.Ignition(v).String()...), '"')
	}
	return strconv.AppendFloat(b, float64(v), 'g', -1, 32)
}
