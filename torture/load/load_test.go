package load

import (
	"testing"

	"carstate/torture/row"
)

// What never happened is a finding.
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
	l.journal.tokens = []*token{{revoked: true}}
	l.journal.sources = []*source{{}}
	l.MustHaveHappened()
	if o := all.Outcome(); !o.Passed() {
		t.Errorf("%+v", o)
	}
}
