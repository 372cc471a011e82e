package drivelog

import (
	"errors"
	"slices"
	"strings"

	"example.org/carstate/internal/vehicle"
)

// The formats of logs, as in [Drive.Format].
const (
	KIT    = "KIT"    // KIT "Automotive OBD-II Dataset": one sensor a row, time of day
	CarOBD = "carOBD" // carOBD: snapshots about every 0.49 s, engine run time
	PyOBD  = "pyobd"  // pyobd: every sensor in each row, Unix milliseconds, mph
	TDS    = "TDS"    // "Traffic, Driving Style and Road Surface Condition": labelled, no time
	HIL    = "HIL"    // hardware-in-the-loop bench: 10 Hz
)

// maxColumns is the maximum number of columns of a file, because a readSet has one bit for each
// column and 64 bits in all. Real headers have at most 27 columns.
const maxColumns = 64

// errUnknown is the error for a file whose first line is not the header of a known format. Its text
// does not repeat the first line, because the file may hold anything.
var errUnknown = errors.New("the first line is not the header of a supported drive log (KIT, carOBD, pyobd, TDS, HIL)")

// asIs is a column with a signal in its own unit.
func asIs(s vehicle.Signal) column { return column{s, true, 1} }

var formats = []format{
	{
		name:  KIT,
		needs: []string{"time", "vehicle speed sensor"},
		time:  "time",
		columns: map[string]column{
			"vehicle speed sensor":         asIs(vehicle.OBDSpeed),
			"engine rpm":                   asIs(vehicle.EngineSpeed),
			"calculated engine load value": asIs(vehicle.EngineLoad),
			"absolute throttle position":   asIs(vehicle.ThrottlePosition),
			"accelerator pedal position d": asIs(vehicle.AcceleratorPositionD),
			"accelerator pedal position e": asIs(vehicle.AcceleratorPositionE),
		},
		watchAll: true,
		daily:    true,
		stamp:    timeOfDay,
		clock:    plainClock,
		read:     roundRobin,
	},
	{
		// The name of the first column is misspelt in all published files.
		name:  CarOBD,
		needs: []string{"engine_run_tine", "vehicle_speed"},
		time:  "engine_run_tine",
		columns: map[string]column{
			"vehicle_speed":               asIs(vehicle.OBDSpeed),
			"engine_rpm":                  asIs(vehicle.EngineSpeed),
			"engine_load":                 asIs(vehicle.EngineLoad),
			"throttle":                    asIs(vehicle.ThrottlePosition),
			"absolute_throttle_b":         asIs(vehicle.ThrottlePositionB),
			"relative_throttle_position":  asIs(vehicle.RelativeThrottlePosition),
			"commanded_throttle_actuator": asIs(vehicle.ThrottleActuator),
			"pedal_d":                     asIs(vehicle.AcceleratorPositionD),
			"pedal_e":                     asIs(vehicle.AcceleratorPositionE),
		},
		stamp: seconds,
		clock: runTimeClock,
		read:  snapshots,
	},
	{
		name:  PyOBD,
		needs: []string{"ts", "rpm", "speed"},
		time:  "ts",
		columns: map[string]column{
			// The logger divides whole km/h by 1.609. Multiplied by this factor, every speed of the
			// published drive is a whole number again, to 1e-10.
			"speed":        {vehicle.OBDSpeed, true, 1.609},
			"rpm":          asIs(vehicle.EngineSpeed),
			"load":         asIs(vehicle.EngineLoad),
			"throttle_pos": asIs(vehicle.ThrottlePosition),
		},
		absolute: true,
		stamp:    unixMillis,
		clock:    plainClock,
		read:     everyCell,
	},
	{
		name:  TDS,
		needs: []string{"vehiclespeedinstantaneous", sessionColumn},
		label: "traffic",
		columns: map[string]column{
			sessionColumn:               {},
			"vehiclespeedinstantaneous": asIs(vehicle.OBDSpeed),
			"enginerpm":                 asIs(vehicle.EngineSpeed),
			"engineload":                asIs(vehicle.EngineLoad),
		},
		clock: sessionClock,
		read:  everyCell,
	},
	{
		name:  HIL,
		needs: []string{"time_s", "v_vehicle"},
		time:  "time_s",
		columns: map[string]column{
			"v_vehicle":    asIs(vehicle.Speed),
			"n_engine":     asIs(vehicle.EngineSpeed),
			"pos_accpedal": asIs(vehicle.AcceleratorPositionD),
		},
		stamp: seconds,
		clock: plainClock,
		read:  everyCell,
	},
}

// labels are the traffic labels of the TDS logs.
var labels = map[string]vehicle.DrivingState{
	"LowCongestionCondition":    vehicle.NormalDriving,
	"NormalCongestionCondition": vehicle.SlowDriving,
	"HighCongestionCondition":   vehicle.TrafficJam,
}

// spellings maps the name of a column in a logger's documentation to its spelling in the logger's
// files. The definitions of the formats use the spelling in the files.
var spellings = map[string]string{
	"engine_run_time":              "engine_run_tine",
	"accelerator_pedal_position_d": "pedal_d",
	"accelerator_pedal_position_e": "pedal_e",
}

// columnKey returns the name by which the formats identify a column, given its cell in the header
// line: the text without quotes and unit, in lower case, such as "engine rpm" for "Engine RPM
// [RPM]", and corrected with spellings.
func columnKey(cell string) string {
	name, _, _ := strings.Cut(cell, "[")
	name, _, _ = strings.Cut(name, "(")
	name = strings.ToLower(trimCell(name))
	if known, ok := spellings[name]; ok {
		return known
	}
	return name
}

// trimCell removes white space and the quotes that some exports add.
func trimCell(s string) string { return strings.Trim(s, " \t\r\"") }

// findFormat returns the format of a log whose header has the column names in keys, or errUnknown.
func findFormat(keys []string) (*format, error) {
	for i := range formats {
		if !slices.ContainsFunc(formats[i].needs, func(k string) bool { return !slices.Contains(keys, k) }) {
			return &formats[i], nil
		}
	}
	return nil, errUnknown
}
