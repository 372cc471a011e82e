package load

import (
	"net/http"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

func answer(at int64) nodeprocess.Answer {
	return nodeprocess.Answer{HTTP: http.StatusOK, Status: 1, Driving: "1", Modified: time.Unix(at, 0)}
}

var unknown = nodeprocess.Answer{HTTP: http.StatusOK}

// As in the patches.
const (
	lostSample = "lost: * was acknowledged with a sample of *, and its state is of *"
	lostCar    = "lost: * was acknowledged with a sample of * and is unknown"
	wentBack   = "wrong: * went back in time: its state was of * and is of *"
)

// The samples of 100 and 101 s were acknowledged, and that of 102 s was only sent.
func TestCheck_Answers(t *testing.T) {
	for name, c := range map[string]struct {
		answers []nodeprocess.Answer
		settled bool
		finding string
	}{
		"the newest":             {[]nodeprocess.Answer{answer(101)}, true, ""},
		"one that was only sent": {[]nodeprocess.Answer{answer(102)}, true, ""},
		"late, but not settled":  {[]nodeprocess.Answer{unknown, answer(100), answer(101)}, false, ""},
		"late":                   {[]nodeprocess.Answer{answer(100)}, true, lostSample},
		"late and back in time":  {[]nodeprocess.Answer{answer(101), answer(100)}, true, lostSample},
		"unknown":                {[]nodeprocess.Answer{unknown}, true, lostCar},
		"back in time":           {[]nodeprocess.Answer{answer(101), answer(100)}, false, wentBack},
		"never sent":             {[]nodeprocess.Answer{answer(103)}, true, "wrong: * no such sample was sent"},
		"known, then unknown":    {[]nodeprocess.Answer{answer(101), unknown}, false, "wrong: * is unknown now"},
		"another verdict": {[]nodeprocess.Answer{{HTTP: http.StatusOK, Status: 1, Driving: "3",
			Modified: time.Unix(101, 0)}}, false, "wrong: * drives normally*"},
		"refused": {[]nodeprocess.Answer{{HTTP: http.StatusUnauthorized}}, false,
			"wrong: * answered with 401"},
	} {
		a := &row.Attempt{Logf: t.Logf, Stop: func() {}, Control: &defects.Control{By: []string{c.finding}}}
		l := New(a)
		samples := []sample{{"many0x1", 100}, {"many0x1", 101}, {"many0x1", 102}}
		l.journal.offer(samples)
		l.journal.acknowledge(samples[:2])
		for i, answer := range c.answers {
			f := l.journal.check("many0x1", l.journal.before("many0x1"), answer, c.settled)
			if f.text != "" {
				l.report(f)
			}
			if f.text != "" && i < len(c.answers)-1 {
				t.Errorf("%s: answer %d: %+v", name, i, f)
			}
		}
		if o := a.Outcome(); (o.CaughtBy != "") != (c.finding != "") || o.Found() != (c.finding != "") {
			t.Errorf("%s: got %+v, want finding %q", name, o, c.finding)
		}
	}
}
