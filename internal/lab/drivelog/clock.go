package drivelog

import (
	"slices"
	"time"
)

const (
	day = 24 * time.Hour
	// longestDrive is the longest time that the rows of one file may span. Without this limit, the
	// times of a file that consists only of gaps could exceed the maximum of a [time.Duration].
	longestDrive = 366 * day
)

// plainClock returns the time of each row since the first row: the sum of the steps between rows. If
// the log has only times of day, a step of more than half a day back has passed midnight, and one of
// more than half a day ahead is a clock that was set back across midnight.
//
// If a step is negative, or longer than a day, the clock was set. Such a step says nothing about the
// time that passed, so it becomes 1 ms, and is counted in a; so does every step after longestDrive.
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
			a.mend(clockSet)
			d = time.Millisecond
		}
		at[i] = at[i-1] + d
	}
	return at
}

// snapshotEvery is the time between two rows of a carOBD log, if the log does not show it. In each
// of the 54 published files, it is 0.491 to 0.495 s.
const snapshotEvery = 490 * time.Millisecond

// runTimeClock is for logs whose only clock is the engine's run time in whole seconds, which the
// logger reads once in three or four rows. Successive rows with the same run time are spread evenly
// over the time until the next one. Rows that cannot be spread are taken to be snapshotEvery apart:
// those with the engine off, at the end, before a gap or a restart of the clock, too many of one
// second, and those beyond longestDrive.
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
				a.mend(runTimeAgain)
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

// sessionColumn is the column of the TDS logs that shows where one of the recordings in a file begins:
// an average over the last minute, which is blank in the first 10 to 59 rows. So a recording begins
// where at least sessionBlanks blank rows follow a row with a value.
const (
	sessionColumn = "vehiclespeedaverage"
	sessionBlanks = 5
	sessionPause  = time.Hour
)

// sessionClock is for logs without a clock. Rows are taken to be one second apart. The pause before
// each further recording is unknown; sessionPause makes each a drive of its own for the rules.
func sessionClock(t *table, a *account) []time.Duration {
	recs := t.records
	at := make([]time.Duration, len(recs))
	// The session column is the only column of the table that no rule uses.
	session := slices.IndexFunc(t.columns, func(c column) bool { return !c.used })
	hasValue := func(r record) bool { return !isNaN(r.cells[session]) }
	for i := 1; i < len(recs); i++ {
		at[i] = at[i-1] + time.Duration(recs[i].line-recs[i-1].line)*time.Second
		next := recs[i:min(i+sessionBlanks, len(recs))]
		if recs[i].joined ||
			hasValue(recs[i-1]) && len(next) == sessionBlanks && !slices.ContainsFunc(next, hasValue) {
			a.mend(newSession)
			at[i] += sessionPause
		}
	}
	return at
}
