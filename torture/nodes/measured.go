package nodes

import (
	"fmt"
	"time"

	"carstate/torture/row"
)

// measured holds the longest durations that were measured during the disturbances.
type measured struct {
	by    map[string]*recovery // by kind of disturbance
	age   time.Duration        // of a node's copy of the states
	taken longest              // from the stop of a node that folds until every car had a new verdict
}

func newMeasured() *measured {
	m := &measured{by: make(map[string]*recovery)}
	for _, k := range kinds {
		m.by[k.name] = new(recovery)
	}
	return m
}

// recovery holds the durations of the recovery from the loss of a server.
type recovery struct {
	stall   longest // wait of a writer for an acknowledgement
	verdict longest // from the end of that wait until every car had a new verdict, in lasting disturbances
	feeds   longest // from when a node could store again until its copy was current
}

// longest is the maximum of several durations, if any was measured.
type longest struct {
	time.Duration
	measured bool
}

func (l *longest) take(d time.Duration) { *l = longest{max(l.Duration, d), true} }

// report compares the measurements with the promised limits.
func (m *measured) report(a *row.Attempt) {
	for _, k := range kinds {
		r := m.by[k.name]
		for _, f := range []struct {
			name  string
			took  longest
			limit time.Duration
		}{
			{"longest until writes are acknowledged again", r.stall, 10 * time.Second},
			{"then until every car has a new verdict, longest", r.verdict, 10 * time.Second},
			{"a node's copies are current again after it can store, longest", r.feeds, 7 * time.Second},
		} {
			name := fmt.Sprintf("a server %s: %s", k.name, f.name)
			switch {
			case k.name == killed:
				aimed(a, name, f.took, f.limit)
			case f.took.measured:
				a.Figure(name, seconds(f.took.Duration), "s")
			}
		}
	}
	aimed(a, "a node that folds is stopped: until every car has a new verdict, longest", m.taken, 10*time.Second)
}

// aimed reports a duration that has an aim. If it was not measured, the aim is missed.
func aimed(a *row.Attempt, name string, l longest, limit time.Duration) {
	if !l.measured {
		name += " (not measured)"
	}
	a.Aimed(name, seconds(l.Duration), "s", fmt.Sprintf("≤ %g s", limit.Seconds()), l.measured && l.Duration <= limit)
}

// seconds returns a duration in seconds, rounded to 10 ms.
func seconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Millisecond)) / float64(time.Second)
}
