package telemetry

import (
	"strconv"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// AppendJSON appends a line that this package decodes.
func AppendJSON(b []byte, x *vehicle.Sample) []byte {
	b = append(b, `{"vid":"`...)
	b = append(b, x.Vehicle...)
	b = append(b, `","time":`...)
	b = strconv.AppendInt(b, int64(x.Time), 10)
	b = append(b, `,"signals":{`...)
	before := `"`
	for s := range signal.Signal(signal.Num) {
		if v, ok := x.Value(s); ok {
			b = append(b, before...)
			b = append(b, s.String()...)
			b = append(b, `":`...)
			b = appendValue(b, s, v, x.Codes)
			before = `,"`
		}
	}
	return append(b, "}}\n"...)
}

func appendValue(b []byte, s signal.Signal, v float32, codes []signal.TroubleCode) []byte {
	switch s {
	case signal.DTCList:
		b = append(b, '[')
		for i, c := range codes {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, '"'), c[:]...), '"')
		}
		return append(b, ']')
	case signal.MILOn:
		return strconv.AppendBool(b, v != 0)
	case signal.LowVoltageSystemState:
		return append(append(append(b, '"'), signal.Ignition(v).String()...), '"')
	}
	return strconv.AppendFloat(b, float64(v), 'g', -1, 32)
}
