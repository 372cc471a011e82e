package row

import (
	"errors"
	"testing"

	"example.org/carstate/torture/defects"
)

func TestAttempt_Findings(t *testing.T) {
	stopped := 0
	a := &Attempt{Logf: t.Logf, Stop: func() { stopped++ }}
	a.Offered(3)
	a.Acknowledged(2)
	a.Figure("back after", 1, "s")
	a.Aimed("back after", 1, "s", "≤ 5 s", true)
	if o := a.Outcome(); !o.Passed() || o.Offered != 3 || o.Acknowledged != 2 || len(o.Figures) != 2 {
		t.Errorf("got %+v, want 3 offered, 2 acknowledged, 2 figures and no finding", o)
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
			t.Errorf("got %+v, want %d lost or wrong, and %d findings", o, maxFindings+1, maxFindings)
		}
	}
	var undone Outcome
	if undone.NotDone(errors.New("no disk")); undone.Passed() || undone.Found() || len(undone.Findings) != 1 {
		t.Errorf("got %+v, want an outcome that is not completed, with one finding", undone)
	}
	if stopped != 0 {
		t.Error("a finding ended a run that is no control")
	}
}

func TestControl_CaughtByItsEffectOnly(t *testing.T) {
	r := Row{Controls: []defects.Control{
		{Defect: "forgets", By: []string{"lost: * was (acknowledged) and is *", "missed: memory is *, wanted *"}},
		{Defect: "lies"},
	}}
	if r.Control("") != nil || r.Control("other") != nil || r.Control("lies") != &r.Controls[1] {
		t.Error("a control of a defect that is not its")
	}
	for name, c := range map[string]struct {
		find func(*Attempt)
		by   string
	}{
		"it": {func(a *Attempt) { a.Lost("car\n* was (acknowledged) and is unknown") },
			"lost: car\n* was (acknowledged) and is unknown"},
		"another sort": {func(a *Attempt) { a.Aimed("memory", 7, "MiB", "≤ 6 MiB", false) },
			"missed: memory is 7 MiB, wanted ≤ 6 MiB"},
		"an aim that is met": {func(a *Attempt) { a.Aimed("memory", 5, "MiB", "≤ 6 MiB", true) }, ""},
		"another kind":       {func(a *Attempt) { a.Wrong("car was (acknowledged) and is unknown") }, ""},
		"a part of it":       {func(a *Attempt) { a.Lost("car was (acknowledged)") }, ""},
		"more before it":     {func(a *Attempt) { a.Wrong("lost: car was (acknowledged) and is unknown") }, ""},
		"only the first counts": {func(a *Attempt) {
			a.Wrong("it does not start")
			a.Lost("car1 was (acknowledged) and is gone")
			a.Lost("car2 was (acknowledged) and is gone")
		}, "lost: car1 was (acknowledged) and is gone"},
		"many others first": {func(a *Attempt) {
			for range maxFindings + 1 {
				a.Wrong("noise")
			}
			a.Lost("car was (acknowledged) and is gone")
		}, "lost: car was (acknowledged) and is gone"},
	} {
		stopped := false
		a := &Attempt{Logf: t.Logf, Control: r.Control("forgets"), Stop: func() { stopped = true }}
		c.find(a)
		if o := a.Outcome(); o.CaughtBy != c.by || stopped != (c.by != "") {
			t.Errorf("%s: caught by %q, ended: %t", name, o.CaughtBy, stopped)
		}
	}
	a := &Attempt{Logf: t.Logf, Control: r.Control("lies"), Stop: func() { t.Error("ended by what it does not name") }}
	a.Wrong("")
	if o := a.Outcome(); o.CaughtBy != "" || !o.Found() {
		t.Errorf("got %+v, want a finding that catches no control", o)
	}
}
