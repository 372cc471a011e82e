package drivelog

import (
	"math/bits"
	"time"
)

// everyCell is for loggers that read all sensors for each row.
func everyCell(t *table, _ []time.Duration) []readSet {
	reads := make([]readSet, len(t.records))
	for i := range t.records {
		for c, v := range t.records[i].cells {
			if !isNaN(v) {
				reads[i] |= setOf(c)
			}
		}
	}
	return reads
}

// changes includes the first value of a recording.
func changes(t *table) []readSet {
	changed := make([]readSet, len(t.records))
	last := t.blank()
	for i := range t.records {
		if t.records[i].joined {
			last = t.blank()
		}
		for c, v := range t.records[i].cells {
			if !isNaN(v) && v != last[c] {
				changed[i] |= setOf(c)
				last[c] = v
			}
		}
	}
	return changed
}

// The KIT logger reads a sensor every 0.09 s: such a gap is a pause, not a failed read.
const pollingPause = 2 * time.Second

// roundRobin is for loggers that read one sensor for each row and repeat the others. If no value
// changes, only the order shows which was read: with 10 columns, row n reads column n mod 10. A
// failed read writes no row, and shifts the order: 4 of the 38 KIT drives of 2017 have 2 to 127
// shifts. So the order is used only between two changes without a shift or a pause.
func roundRobin(t *table, at []time.Duration) []readSet {
	reads := changes(t)
	var ever readSet
	for _, s := range reads {
		ever |= s
	}
	// The logger reads in the order of the header, and skips what the car does not support.
	var order []int
	place := make([]int, len(t.columns)) // of each column in the order
	for c := range t.columns {
		if ever.has(c) {
			place[c] = len(order)
			order = append(order, c)
		}
	}
	modulo := func(line int) int { return (line%len(order) + len(order)) % len(order) }
	anchor := -1 // last row with one change, with no pause since
	turn := 0    // number, modulo the length of the order, of the rows that read its first column
	for i, read := range reads {
		if i > 0 && (t.records[i].joined || at[i]-at[i-1] > pollingPause) {
			anchor = -1
		}
		if read == 0 {
			continue
		}
		if bits.OnesCount64(uint64(read)) > 1 {
			// Rows before this one were left out, and each of these cells was read since. But the
			// first values may be old if the log begins within a drive.
			if i == 0 || t.records[i].joined {
				reads[i] = 0
			}
			anchor = -1
			continue
		}
		now := modulo(t.records[i].line - place[bits.TrailingZeros64(uint64(read))])
		if anchor >= 0 && now == turn {
			for k := anchor + 1; k < i; k++ {
				if c := order[modulo(t.records[k].line-turn)]; !isNaN(t.records[k].cells[c]) {
					reads[k] = setOf(c)
				}
			}
		}
		anchor, turn = i, now
	}
	return reads
}

const (
	// In all 54 carOBD files, two changes of a cell are 3, 4, 7, 8, 11, 12 … rows apart, so
	// all sensors are read once in 1.8 s.
	snapshotCycle = 4
	snapshotPause = 5 * time.Second
)

// snapshots is for loggers that write more often than they read. A cell that has not changed for
// snapshotCycle rows was read again at most 2 s before.
func snapshots(t *table, at []time.Duration) []readSet {
	reads := changes(t)
	since := make([]int, len(t.columns))
	for i := range t.records {
		rec := &t.records[i]
		if i > 0 && (rec.joined || at[i]-at[i-1] > snapshotPause) {
			for c := range since {
				since[c] = rec.line
			}
		}
		for c, v := range rec.cells {
			if !isNaN(v) && rec.line-since[c] >= snapshotCycle {
				reads[i] |= setOf(c)
			}
			if reads[i].has(c) {
				since[c] = rec.line
			}
		}
	}
	return reads
}
