package vehicle

import "example.org/carstate/internal/signal"

type Sample struct {
	Vehicle ID
	Time    signal.UnixMilli
	Source  uint32           // number; 0 if none
	Crowd   bool             // each car of the source is believed to be one, so each is a voice on roads
	Stored  signal.UnixMilli // when the telemetry log stored it, or 0
	signal.Readings
}

// Relearn returns a list with the zero code, which no sender can name: the rules then know nothing
// of the throttle, not even a fault.
func Relearn(id ID, at signal.UnixMilli) Sample {
	x := Sample{Vehicle: id, Time: at, Readings: signal.Readings{Codes: []signal.TroubleCode{{}}}}
	_ = x.Set(signal.DTCList, 0) // 0 is in its range
	return x
}
