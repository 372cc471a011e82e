package drivelog

import (
	"slices"
	"time"
)

const (
	day = 24 * time.Hour
	// Without this limit, the times of a file of gaps could exceed a [time.Duration].
	longestDrive = 366 * day
)

// plainClock: in a log of times of day, a step of more than half a day back has passed midnight,
// and such a step ahead is a clock set back across midnight. Another step back, or of more than a
// day, does not show the time that passed: it becomes 1 ms and is counted.
func plainClock(t *table, a *account) []time.Duration {
	recs := t.records
	at := make([]time.Duration, len(recs))
	daily := t.format.Log.Clock == "daily"
	for i := 1; i < len(recs); i++ {
		d := time.Duration(recs[i].stamp-recs[i-1].stamp) * time.Millisecond
		switch {
		case daily && d < -day/2:
			d += day
		case daily && d > day/2:
			d -= day
		}
		if d < 0 || d > day || at[i-1] > longestDrive {
			a.mended.add(clockSet)
			d = time.Millisecond
		}
		at[i] = at[i-1] + d
	}
	return at
}

// snapshotEvery is about the time from row to row of carOBD: .491 to .495 s in 54 published files.
const snapshotEvery = 490 * time.Millisecond

// runTimeClock is for logs with only the engine's run time in whole seconds: rows of one second are
// spread evenly until the next, or are snapshotEvery apart.
func runTimeClock(t *table, a *account) []time.Duration {
	recs := t.records
	at := make([]time.Duration, len(recs))
	base := time.Duration(0)
	for i := 0; i < len(recs); {
		end := i + 1
		for end < len(recs) && recs[end].stamp == recs[i].stamp && !recs[end].joined {
			end++
		}
		n := time.Duration(end - i)
		every, next := snapshotEvery, n*snapshotEvery
		if end < len(recs) {
			step := time.Duration(recs[end].stamp-recs[i].stamp) * time.Millisecond
			switch {
			case step < 0 || step > day || base > longestDrive || recs[end].joined:
				a.mended.add(runTimeAgain)
			case step > next*3: // a gap follows these rows
				next = step
			case recs[i].stamp > 0 && step >= next/3:
				every, next = step/n, step
			}
		}
		for k := i; k < end; k++ {
			at[k] = base + (time.Duration(k-i) * every).Round(time.Millisecond)
		}
		base += next
		i = end
	}
	return at
}

// sessionColumn of a TDS log is an average over a minute, blank in a recording's first 10 to 59
// rows: where sessionBlanks blank rows follow a value, a recording begins.
const (
	sessionColumn = "vehiclespeedaverage"
	sessionBlanks = 5
	sessionPause  = time.Hour
)

// sessionClock is for logs without a clock, with a row a second. The pause before each further
// recording is unknown.
func sessionClock(t *table, a *account) []time.Duration {
	recs := t.records
	at := make([]time.Duration, len(recs))
	// The session column is the only one that no rule uses.
	session := slices.IndexFunc(t.columns, func(c column) bool { return !c.used })
	hasValue := func(r record) bool { return !isNaN(r.cells[session]) }
	for i := 1; i < len(recs); i++ {
		at[i] = at[i-1] + time.Duration(recs[i].line-recs[i-1].line)*time.Second
		next := recs[i:min(i+sessionBlanks, len(recs))]
		if recs[i].joined || hasValue(recs[i-1]) && len(next) == sessionBlanks && !slices.ContainsFunc(next, hasValue) {
			a.mended.add(newSession)
			at[i] += sessionPause
		}
	}
	return at
}
