package row

import (
	"errors"
	"testing"
)

func TestAttempt(t *testing.T) {
	stopped := 0
	a := &Attempt{Logf: t.Logf, Stop: func() { stopped++ }}
	a.Offered(3)
	a.Acknowledged(2)
	a.Figure("back after", 1, "s")
	a.Aimed("back after", 1, "s", "≤ 5 s", true)
	if o := a.Outcome(); !o.Passed() || o.Offered != 3 || o.Acknowledged != 2 || len(o.Figures) != 2 {
		t.Errorf("%+v", o)
	}
	a.Aimed("back after", 6, "s", "≤ 5 s", false)
	if o := a.Outcome(); o.Passed() {
		t.Error("a missed aim is no finding")
	}
	for _, find := range []func(*Attempt){
		func(a *Attempt) { a.Lost("%d", 1) },
		func(a *Attempt) { a.Wrong("%d", 1) },
	} {
		a := &Attempt{Logf: t.Logf, Stop: func() { stopped++ }}
		for range maxFindings + 1 {
			find(a)
		}
		if o := a.Outcome(); o.Passed() || len(o.Findings) != maxFindings || o.Lost+o.Wrong != maxFindings+1 {
			t.Errorf("%+v", o)
		}
	}
	var undone Outcome
	if undone.NotDone(errors.New("no disk")); undone.Passed() || undone.Found() || len(undone.Findings) != 1 {
		t.Errorf("%+v", undone)
	}
	if stopped != 0 {
		t.Error("a finding ended a run that is no control")
	}
	a.Defect = "x"
	a.Lost("x")
	if stopped != 1 {
		t.Error("a control goes on after it was caught")
	}
}
