package load

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// Only who ended by itself has refused to start.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"killed":   {&nodeprocess.EndedError{Code: -1, Last: "ready"}, false},
		"given up": {context.Canceled, false},
		"refused":  {fmt.Errorf("start: %w", &nodeprocess.EndedError{Code: 1, Last: "carstate: the data directory is damaged"}), true},
	} {
		a := &row.Attempt{Logf: t.Logf}
		err := New(a).Refused(c.err, "a power cut")
		if o := a.Outcome(); (err != nil) != c.refused || err != nil && !errors.Is(err, c.err) || (o.Wrong == 1) != c.refused ||
			c.refused && o.Findings[0] != "wrong: it does not start after a power cut: carstate: the data directory is damaged" {
			t.Errorf("%s: %v, %+v", name, err, o)
		}
	}
}

// Controls are caught by what the load says when it has lost something.
func TestLostTexts(t *testing.T) {
	for name, c := range map[string]struct {
		answers []nodeprocess.Answer
		settled bool
		by      string
	}{
		"an older state": {[]nodeprocess.Answer{answer(100)}, true, LostSample},
		"no state":       {[]nodeprocess.Answer{unknown}, true, LostCar},
		"back in time":   {[]nodeprocess.Answer{answer(101), answer(100)}, false, WentBack},
		"both":           {[]nodeprocess.Answer{answer(101), answer(100)}, true, LostSample},
	} {
		a := &row.Attempt{Logf: t.Logf, Stop: func() {}, Control: &row.Control{By: []string{c.by}}}
		l := New(a)
		samples := []sample{{"many0x1", 100}, {"many0x1", 101}}
		l.journal.offer(samples)
		l.journal.acknowledge(samples)
		for _, answer := range c.answers {
			if f := l.journal.judge("many0x1", l.journal.before("many0x1"), answer, c.settled); f.Text != "" {
				l.report(f)
			}
		}
		if o := a.Outcome(); o.CaughtBy == "" || o.Lost+o.Wrong != 1 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A row in which a deed never happened has a finding.
func TestMustHaveHappened(t *testing.T) {
	attempt := func() *row.Attempt { return &row.Attempt{Logf: t.Logf, Stop: func() {}} }
	nothing := attempt()
	New(nothing).MustHaveHappened()
	if o := nothing.Outcome(); o.Wrong != 5 {
		t.Errorf("%+v", o)
	}
	all := attempt()
	l := New(all)
	l.Stats.Posted.Add(1)
	l.Stats.Published.Add(1)
	l.journal.records = []*record{{gone: true}, {source: true}}
	l.MustHaveHappened()
	if o := all.Outcome(); !o.Passed() {
		t.Errorf("%+v", o)
	}
}
