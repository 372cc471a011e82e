package row_test

import (
	"testing"

	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

func TestControl_CaughtByItsEffectOnly(t *testing.T) {
	r := row.Row{Controls: []defects.Control{
		{Defect: "forgets", By: []string{"lost: * was (acknowledged) and is *", "missed: memory is *, wanted *"}},
		{Defect: "lies"},
	}}
	if r.Control("") != nil || r.Control("other") != nil || r.Control("lies") != &r.Controls[1] {
		t.Error("the control of a defect: got another one, want its own or none")
	}
	for name, c := range map[string]struct {
		find func(*row.Attempt)
		by   string
	}{
		"it": {func(a *row.Attempt) { a.Lost("car\n* was (acknowledged) and is unknown") },
			"lost: car\n* was (acknowledged) and is unknown"},
		"another sort": {func(a *row.Attempt) { a.Aimed("memory", 7, "MiB", "≤ 6 MiB", false) },
			"missed: memory is 7 MiB, wanted ≤ 6 MiB"},
		"an aim that is met": {func(a *row.Attempt) { a.Aimed("memory", 5, "MiB", "≤ 6 MiB", true) }, ""},
		"another kind":       {func(a *row.Attempt) { a.Wrong("car was (acknowledged) and is unknown") }, ""},
		"a part of it":       {func(a *row.Attempt) { a.Lost("car was (acknowledged)") }, ""},
		"more before it":     {func(a *row.Attempt) { a.Wrong("lost: car was (acknowledged) and is unknown") }, ""},
		"only the first counts": {func(a *row.Attempt) {
			a.Wrong("it does not start")
			a.Lost("car1 was (acknowledged) and is gone")
			a.Lost("car2 was (acknowledged) and is gone")
		}, "lost: car1 was (acknowledged) and is gone"},
		"many others first": {func(a *row.Attempt) {
			for range 21 {
				a.Wrong("noise")
			}
			a.Lost("car was (acknowledged) and is gone")
		}, "lost: car was (acknowledged) and is gone"},
	} {
		stopped := false
		a := &row.Attempt{Logf: t.Logf, Control: r.Control("forgets"), Stop: func() { stopped = true }}
		c.find(a)
		if o := a.Outcome(); o.CaughtBy != c.by || stopped != (c.by != "") {
			t.Errorf("%s: got caught by %q, ended %t, want %q, %t", name, o.CaughtBy, stopped, c.by, c.by != "")
		}
	}
	a := &row.Attempt{Logf: t.Logf, Control: r.Control("lies"), Stop: func() { t.Error("got an end, want none") }}
	a.Wrong("")
	if o := a.Outcome(); o.CaughtBy != "" || !o.Found() {
		t.Errorf("got %+v, want a finding that catches no control", o)
	}
}
