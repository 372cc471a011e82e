package drivelog

import (
	"time"

	"example.org/carstate/internal/vehicle"
)

type column struct {
	signal vehicle.Signal
	used   bool    // false: needed to determine what was read, but no rule uses it
	factor float64 // to the signal's unit
}

// format describes one kind of log. A column is identified by its name without the unit, in lower
// case, because the bytes of the unit differ between exports.
type format struct {
	name     string
	needs    []string // columns that distinguish this format from all others
	time     string   // column of the time; "" if rows are a second apart
	label    string   // column of the label; "" if there is none
	columns  map[string]column
	watchAll bool // keep the other columns, too, because they have places in the order of reading
	absolute bool // stamps are Unix milliseconds
	daily    bool // stamps are times of day, so they begin again at midnight
	stamp    func(cell string) (ms int64, ok bool)
	clock    func(*table, *account) []time.Duration
	read     func(*table, []time.Duration) []readSet
}

// table is the content of a log as numbers, newly read or repeated.
type table struct {
	format  *format
	columns []column // of the cells of a record
	records []record
	lines   int // data rows in the file

	header  string
	comma   string // separator of cells
	width   int    // columns in the header
	timeAt  int    // index of the time column, -1 for none
	labelAt int
	cellAt  []int // by index in the header: index in columns, -1 for none
}

// record is one row of a log with a readable time, or any row of a log without times.
type record struct {
	line  int   // index among the file's data rows, those left out included
	stamp int64 // milliseconds on the logger's clock
	// joined is set if another recording begins here, after a repeated header.
	joined bool
	label  vehicle.DrivingState
	cells  []float32 // in the signals' units; NaN: blank or unreadable
}

func isNaN(v float32) bool { return v != v }

// readSet is the set of columns whose sensors were newly read for one row. Other columns of the row
// may repeat an earlier value.
type readSet uint64

func (s readSet) has(column int) bool { return s&(1<<column) != 0 }

func setOf(column int) readSet { return 1 << column }
