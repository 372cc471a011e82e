// Package signal holds what a car reports: its signals, their values and times, and trouble codes.
package signal

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

type Signal uint8

// FreeFlowSpeed and SpeedHolds have names of our own: VSS has none.
const (
	Speed Signal = iota
	OBDSpeed
	EngineSpeed
	EngineLoad
	ThrottlePosition
	ThrottlePositionB
	RelativeThrottlePosition
	ThrottleActuator
	AcceleratorPositionD
	AcceleratorPositionE
	DTCList // the value is the number of codes
	MILOn
	LowVoltageSystemState // an [Ignition]
	FreeFlowSpeed         // 0 if the source does not know
	CurrentLatitude
	CurrentLongitude
	CurrentHeading
	CurrentAccuracy
	SpeedHolds // how long the speed of the same time holds; only ingest sets it
	Num        = iota
)

// The ranges of percentages are those of SAE J1979. Those of speeds exceed it (255 km/h, 16,384
// rpm), because other sources report more.
var table = [Num]struct {
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
	LowVoltageSystemState:    {"Vehicle.LowVoltageSystemState", "", float64(IgnitionLock), float64(IgnitionStart)},
	FreeFlowSpeed:            {"x-carstate.FreeFlowSpeed", "km/h", 0, 300},
	CurrentLatitude:          {"Vehicle.CurrentLocation.Latitude", "degrees", -90, 90},
	CurrentLongitude:         {"Vehicle.CurrentLocation.Longitude", "degrees", -180, 180},
	CurrentHeading:           {"Vehicle.CurrentLocation.Heading", "degrees", 0, 360},
	CurrentAccuracy:          {"Vehicle.CurrentLocation.HorizontalAccuracy", "m", 0, 1e6},
	SpeedHolds:               {"x-carstate.SpeedHolds", "s", 0, 24 * 60 * 60},
}

func (s Signal) String() string { return table[s].name }

func (s Signal) Unit() string { return table[s].unit }

// IsPosition: positions are private, and must never appear in a log, a metric or an answer.
func (s Signal) IsPosition() bool { return s == CurrentLatitude || s == CurrentLongitude }

func ByName[T string | []byte](name T) (Signal, bool) {
	s, ok := byName[string(name)]
	return s, ok
}

// aliases replace the branch Vehicle.OBD, which VSS 5 deprecated and VSS 6 removed.
var aliases = [...]struct {
	name string
	s    Signal
}{
	{"Vehicle.Powertrain.CombustionEngine.Speed", EngineSpeed},
	{"Vehicle.Powertrain.CombustionEngine.TPS", ThrottlePosition},
	{"Vehicle.Chassis.Accelerator.PedalPosition", AcceleratorPositionD},
	{"Vehicle.Diagnostics.DTCList", DTCList},
}

var byName = func() map[string]Signal {
	m := make(map[string]Signal, Num+len(aliases))
	for i := range table[:SpeedHolds] {
		m[table[i].name] = Signal(i)
	}
	for _, a := range aliases {
		m[a.name] = a.s
	}
	return m
}()

func Names() (names []string) {
	for _, t := range table[:SpeedHolds] {
		names = append(names, t.name)
	}
	for _, a := range aliases {
		names = append(names, a.name)
	}
	return names
}

var ErrImpossible = errors.New("impossible value")

// holds is false for NaN.
func (s Signal) holds(v float64) bool {
	return v >= table[s].min && v <= table[s].max
}

var outOfRange = func() (all [Num]error) {
	for i := range all {
		s := Signal(i)
		all[i] = fmt.Errorf("%w: %s must be %s", ErrImpossible, s, s.Range())
	}
	return all
}()

func (s Signal) Range() string {
	t := &table[s]
	if s == LowVoltageSystemState {
		return "one of " + strings.Join(ignitionNames[:], ", ")
	}
	return strings.TrimSpace(fmt.Sprintf("between %.0f and %.0f %s", t.min, t.max, t.unit))
}

var ErrNotAvailable = errors.New("not available")

// isAbsent reports whether senders mean "not available". iOS sends a negative speed or course, AIS
// the latitude 91, the longitude 181 and the course 511, SAE J1939 the bytes 0xFE and 0xFF at the
// end of a range. Such a value is recognized only where no reading has it: a car may drive 255
// km/h, but no engine reaches the 0xFFFF of J1979.
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
	return table[s].unit == "percent" && (v == -1 || near(0.4*0xFE) || near(0.4*0xFF))
}

type Ignition uint8

const (
	IgnitionUndefined Ignition = iota
	IgnitionLock
	IgnitionOff
	IgnitionAccessory
	IgnitionOn
	IgnitionStart
)

var ignitionNames = [...]string{"UNDEFINED", "LOCK", "OFF", "ACC", "ON", "START"}

func (i Ignition) String() string {
	if int(i) >= len(ignitionNames) {
		return fmt.Sprintf("Ignition(%d)", uint8(i))
	}
	return ignitionNames[i]
}

func (i Ignition) On() bool { return i == IgnitionOn || i == IgnitionStart }
