package drivelog

import (
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
)

type column struct {
	signal signal.Signal
	used   bool    // if false, no rule uses it, but it shows what was read
	factor float64 // to the signal's unit
	values map[string]string
}

func (c *column) isText() bool {
	return c.values != nil || c.signal == signal.DTCList || c.signal == signal.MILOn ||
		c.signal == signal.LowVoltageSystemState
}

type table struct {
	format  *logger
	columns []column
	records []record
	lines   int

	header  string
	comma   string
	width   int
	timeAt  int // -1 for none
	labelAt int
	cellAt  []int // index in columns, -1 for none

	nameAt, valueAt, unitAt int            // if each row names its sensor; otherwise nameAt is -1
	byName                  map[string]int // index in columns

	codes map[int][]signal.TroubleCode // by line
}

type record struct {
	line   int   // among the file's data rows, those left out included
	stamp  int64 // milliseconds on the logger's clock
	joined bool  // another recording begins here
	label  driving.State
	cells  []float32 // NaN: blank or unreadable
}

func isNaN(v float32) bool { return v != v }

func (t *table) blank() []float32 {
	return slices.Repeat([]float32{float32(math.NaN())}, len(t.columns))
}

// readSet has the columns whose sensors were newly read.
type readSet uint64

func (s readSet) has(column int) bool { return s&(1<<column) != 0 }

func setOf(column int) readSet { return 1 << column }

// isReadable: a stamp is in the years 2000 to 2099, or counts from the beginning.
func (t *table) isReadable(ms int64) bool {
	if t.format.Log.Clock == "absolute" || len(t.records) > 0 && isAbsolute(t.records[0].stamp) || isAbsolute(ms) {
		return isAbsolute(ms) && ms < 4102444800000 && (len(t.records) == 0 || isAbsolute(t.records[0].stamp))
	}
	return ms >= 0 && ms < longestDrive.Milliseconds()
}

func isAbsolute(ms int64) bool { return ms >= 946684800000 }

func (t *table) start() (at time.Time) {
	if len(t.records) > 0 && isAbsolute(t.records[0].stamp) {
		at = time.UnixMilli(t.records[0].stamp).UTC()
	}
	return at
}
