package vehicle

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Signal names one of the sensor readings that the rules use.
type Signal uint8

// The signals, by their COVESA VSS names (see [Signal.String] and aliases). VSS has no signal for
// the free flow of a road, so that name is our own.
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
	SpeedHolds                             // how long the speed of the same time holds, s; only ingest sets it
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
	SpeedHolds:               {"x-carstate.SpeedHolds", "s", 0, 24 * 60 * 60},
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
// private: their values must never appear in a log, a metric or an answer.
func (s Signal) IsPosition() bool { return s == CurrentLatitude || s == CurrentLongitude }

// SignalByName returns the signal with a VSS name, if there is one. It allocates nothing.
func SignalByName[T string | []byte](name T) (Signal, bool) {
	s, ok := signalsByName[string(name)]
	return s, ok
}

// aliases are the names of signals outside of the branch Vehicle.OBD, which VSS 5 deprecated and
// VSS 6 removed.
var aliases = [...]struct {
	name string
	s    Signal
}{
	{"Vehicle.Powertrain.CombustionEngine.Speed", EngineSpeed},
	{"Vehicle.Powertrain.CombustionEngine.TPS", ThrottlePosition},
	{"Vehicle.Chassis.Accelerator.PedalPosition", AcceleratorPositionD},
	{"Vehicle.Diagnostics.DTCList", DTCList},
}

var signalsByName = func() map[string]Signal {
	m := make(map[string]Signal, NumSignals+len(aliases))
	for i := range signalTable[:SpeedHolds] {
		m[signalTable[i].name] = Signal(i)
	}
	for _, a := range aliases {
		m[a.name] = a.s
	}
	return m
}()

// SignalNames returns all names that [SignalByName] knows, aliases last.
func SignalNames() (names []string) {
	for _, t := range signalTable[:SpeedHolds] {
		names = append(names, t.name)
	}
	for _, a := range aliases {
		names = append(names, a.name)
	}
	return names
}

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
	return outOfRange[s]
}

// outOfRange has the error for each signal. A sender may send an impossible value with each sample.
var outOfRange = func() (all [NumSignals]error) {
	for i := range all {
		s := Signal(i)
		all[i] = fmt.Errorf("%w: %s must be %s", ErrImpossible, s, s.Range())
	}
	return all
}()

// Range says in words which values the signal can have, such as "between 0 and 500 km/h".
func (s Signal) Range() string {
	t := &signalTable[s]
	if s == LowVoltageSystemState {
		return "one of " + strings.Join(ignitionNames[:], ", ")
	}
	return strings.TrimSpace(fmt.Sprintf("between %.0f and %.0f %s", t.min, t.max, t.unit))
}

// ErrNotAvailable marks a value by which a sender says that it has none.
var ErrNotAvailable = errors.New("not available")

// isAbsent reports whether senders mean "not available" by v. iOS sends a negative speed or
// course, AIS the latitude 91, the longitude 181 and the course 511. SAE J1939 has the bytes 0xFE
// (error) and 0xFF at the end of every range. They are recognized only where no other reading has
// the value: a car may drive 255 or 256 km/h, but no engine reaches the 0xFFFF of J1979.
func (s Signal) isAbsent(v float64) bool {
	near := func(x float64) bool { return math.Abs(v-x) < 0.01 } // senders round
	switch s {
	case Speed, OBDSpeed:
		return v < 0 || v != math.Trunc(v) && (near(0xFEFF/256.) || near(0xFFFF/256.))
	case EngineSpeed:
		return near(0xFEFF/8.) || near(0xFFFF/8.) || v >= 16383 && v <= 16384
	case CurrentLatitude:
		return v == 91
	case CurrentLongitude:
		return v == 181
	case CurrentHeading:
		return v < 0 || v == 511
	}
	return signalTable[s].unit == "percent" && (v == -1 || near(0.4*0xFE) || near(0.4*0xFF))
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
	return 0, outOfRange[LowVoltageSystemState]
}
