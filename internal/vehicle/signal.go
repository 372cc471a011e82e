package vehicle

import (
	"errors"
	"fmt"
)

// Signal names one of the sensor readings that the rules use.
type Signal uint8

// The signals, by their COVESA VSS names (see [Signal.String]). VSS has no signal for the
// free flow of a road, so that name is our own.
const (
	Speed                    Signal = iota // Vehicle.Speed, km/h
	OBDSpeed                               // Vehicle.OBD.Speed, km/h
	EngineSpeed                            // Vehicle.OBD.EngineSpeed, rpm
	EngineLoad                             // Vehicle.OBD.EngineLoad, percent
	ThrottlePosition                       // Vehicle.OBD.ThrottlePosition, percent, sensor A
	ThrottlePositionB                      // Vehicle.OBD.ThrottlePositionB, percent, sensor B
	RelativeThrottlePosition               // Vehicle.OBD.RelativeThrottlePosition, percent
	ThrottleActuator                       // Vehicle.OBD.ThrottleActuator, percent, commanded
	AcceleratorPositionD                   // Vehicle.OBD.AcceleratorPositionD, percent
	AcceleratorPositionE                   // Vehicle.OBD.AcceleratorPositionE, percent
	DTCList                                // Vehicle.OBD.DTCList; the reading's value is the number of codes
	MILOn                                  // Vehicle.OBD.Status.IsMILOn, 0 or 1
	LowVoltageSystemState                  // Vehicle.LowVoltageSystemState, an [Ignition]
	FreeFlowSpeed                          // x-carstate.FreeFlowSpeed, km/h; 0 if the source does not know
	CurrentLatitude                        // Vehicle.CurrentLocation.Latitude, degrees north, WGS 84
	CurrentLongitude                       // Vehicle.CurrentLocation.Longitude, degrees east, WGS 84
	CurrentHeading                         // Vehicle.CurrentLocation.Heading, degrees from north
	CurrentAccuracy                        // Vehicle.CurrentLocation.HorizontalAccuracy, m
	NumSignals               = iota
)

// signalTable gives each signal its VSS name, its unit, and the range of values that a sensor can
// report. The ranges of the percentages are those of SAE J1979. The ranges of speed and engine
// speed contain those of J1979 (up to 255 km/h and 16,384 rpm); other sources report up to 500
// km/h. VSS has no upper limit for accuracy. The limit here is 1,000 km, because a position with a
// greater error is useless.
var signalTable = [NumSignals]struct {
	name     string
	unit     string
	min, max float64
}{
	Speed:                    {"Vehicle.Speed", "km/h", 0, 500},
	OBDSpeed:                 {"Vehicle.OBD.Speed", "km/h", 0, 500},
	EngineSpeed:              {"Vehicle.OBD.EngineSpeed", "rpm", 0, 20000},
	EngineLoad:               {"Vehicle.OBD.EngineLoad", "percent", 0, 100},
	ThrottlePosition:         {"Vehicle.OBD.ThrottlePosition", "percent", 0, 100},
	ThrottlePositionB:        {"Vehicle.OBD.ThrottlePositionB", "percent", 0, 100},
	RelativeThrottlePosition: {"Vehicle.OBD.RelativeThrottlePosition", "percent", 0, 100},
	ThrottleActuator:         {"Vehicle.OBD.ThrottleActuator", "percent", 0, 100},
	AcceleratorPositionD:     {"Vehicle.OBD.AcceleratorPositionD", "percent", 0, 100},
	AcceleratorPositionE:     {"Vehicle.OBD.AcceleratorPositionE", "percent", 0, 100},
	DTCList:                  {"Vehicle.OBD.DTCList", "codes", 0, 65535},
	MILOn:                    {"Vehicle.OBD.Status.IsMILOn", "", 0, 1},
	LowVoltageSystemState:    {"Vehicle.LowVoltageSystemState", "", float64(IgnitionLock), float64(ignitionEnd) - 1},
	FreeFlowSpeed:            {"x-carstate.FreeFlowSpeed", "km/h", 0, 300},
	CurrentLatitude:          {"Vehicle.CurrentLocation.Latitude", "degrees", -90, 90},
	CurrentLongitude:         {"Vehicle.CurrentLocation.Longitude", "degrees", -180, 180},
	CurrentHeading:           {"Vehicle.CurrentLocation.Heading", "degrees", 0, 360},
	CurrentAccuracy:          {"Vehicle.CurrentLocation.HorizontalAccuracy", "m", 0, 1e6},
}

// String returns the VSS name.
func (s Signal) String() string {
	if s >= NumSignals {
		return fmt.Sprintf("Signal(%d)", uint8(s))
	}
	return signalTable[s].name
}

// Unit returns the unit of the signal's value, "" if it has none.
func (s Signal) Unit() string { return signalTable[s].unit }

// IsPosition reports whether the signal is the vehicle's latitude or longitude. Positions are
// private: their values must never appear in a log, a metric, a trace or an answer.
func (s Signal) IsPosition() bool { return s == CurrentLatitude || s == CurrentLongitude }

// SignalByName returns the signal with a VSS name, if there is one. It allocates nothing.
func SignalByName[T string | []byte](name T) (Signal, bool) {
	s, ok := signalsByName[string(name)]
	return s, ok
}

var signalsByName = func() map[string]Signal {
	m := make(map[string]Signal, NumSignals)
	for i := range signalTable {
		m[signalTable[i].name] = Signal(i)
	}
	return m
}()

// ErrImpossible marks a value that no sensor can report.
var ErrImpossible = errors.New("impossible value")

// holds reports whether the signal's sensor can report v: a number within the signal's
// range, not NaN and not infinite.
func (s Signal) holds(v float64) bool {
	return v >= signalTable[s].min && v <= signalTable[s].max
}

func (s Signal) check(v float64) error {
	if s.holds(v) {
		return nil
	}
	t := &signalTable[s]
	unit := t.unit
	if unit != "" {
		unit = " " + unit
	}
	return fmt.Errorf("%w: %s must be between %.0f and %.0f%s", ErrImpossible, t.name, t.min, t.max, unit)
}

// Ignition is the state of a car's ignition, the value of the VSS signal
// Vehicle.LowVoltageSystemState.
type Ignition uint8

// The states that VSS lists. A car reports IgnitionUndefined when it does not know the state of its
// ignition; such a report is not recorded as a reading.
const (
	IgnitionUndefined Ignition = iota
	IgnitionLock
	IgnitionOff
	IgnitionAccessory
	IgnitionOn
	IgnitionStart
	ignitionEnd
)

var ignitionNames = [...]string{"UNDEFINED", "LOCK", "OFF", "ACC", "ON", "START"}

// String returns the VSS name, such as "ON".
func (i Ignition) String() string {
	if int(i) >= len(ignitionNames) {
		return fmt.Sprintf("Ignition(%d)", uint8(i))
	}
	return ignitionNames[i]
}

// On reports whether the engine may run in this state.
func (i Ignition) On() bool { return i == IgnitionOn || i == IgnitionStart }

// ParseIgnition parses the VSS name of a state, such as "ON", in upper case. For other text it
// returns an error that wraps [ErrImpossible].
func ParseIgnition(s string) (Ignition, error) {
	for i, n := range ignitionNames {
		if n == s {
			return Ignition(i), nil
		}
	}
	return 0, fmt.Errorf("%w: %s must be one of UNDEFINED, LOCK, OFF, ACC, ON, START", ErrImpossible,
		LowVoltageSystemState)
}
