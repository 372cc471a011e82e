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

// plainClock returns the time of each row since the first row: the sum of the steps between rows. A
// step is the difference of two times of the log. If the log has only times of day, there are two
// special steps:
//
//   - If the time of day falls by more than half a day, midnight has passed, so a day is added to
//     the step.
//   - If it rises by more than half a day, the clock was set back across midnight, so a day is
//     subtracted from the step.
//
// If a step is negative, or longer than a day, the clock was set. Such a step says nothing about
// the time that passed, so it is replaced by 1 ms, the smallest step that the service can
// distinguish. So two rows never get the same time because of such a step. When the rows span more
// than longestDrive, every further step is replaced by 1 ms. Each replaced step is counted in a.
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

// runTimeClock returns the time of each row since the first row. It is for logs whose only clock is
// the engine's run time in whole seconds; the logger reads it once in three or four rows.
// Successive rows with the same run time are spread evenly over the time until the next run time.
//
// Some rows cannot be spread, and are taken to be snapshotEvery apart:
//
//   - rows at run time 0, when the engine is off and its clock does not run;
//   - rows at the end;
//   - rows before a gap, before a new recording or before a restart of the clock;
//   - rows that would get less than a third of snapshotEvery each;
//   - rows beyond longestDrive.
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

// sessionColumn is the column of the TDS logs that shows where a recording begins. Each published
// file consists of several recordings, one after the other. The column is an average over the last
// minute, so in the first 10 to 59 rows of a recording it is blank. So a recording begins where at
// least sessionBlanks blank rows follow a row with a value. sessionPause is the pause that is
// assumed before each further recording.
const (
	sessionColumn = "vehiclespeedaverage"
	sessionBlanks = 5
	sessionPause  = time.Hour
)

// sessionClock returns the time of each row since the first row, for logs without a clock. Rows are
// taken to be one second apart, with a pause of sessionPause before each further recording in the
// file. The true time between two recordings is unknown. The pause is so long that the rules treat
// each recording as a drive of its own.
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
