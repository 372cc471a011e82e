package load

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
)

func answer(at int64) nodeprocess.Answer {
	return nodeprocess.Answer{HTTP: http.StatusOK, Status: 1, Driving: "1", Modified: time.Unix(at, 0)}
}

var unknown = nodeprocess.Answer{HTTP: http.StatusOK}

// What the journal makes of answers, one after the other, to a vehicle of which
// samples of 100 and 101 were acknowledged and one of 102 was sent.
func TestJudge(t *testing.T) {
	cases := map[string]struct {
		answers []nodeprocess.Answer
		settled bool
		finding string
		lost    bool
	}{
		"the newest":             {[]nodeprocess.Answer{answer(101)}, true, "", false},
		"one that was only sent": {[]nodeprocess.Answer{answer(102)}, true, "", false},
		"late, but not settled":  {[]nodeprocess.Answer{unknown, answer(100), answer(101)}, false, "", false},
		"late":                   {[]nodeprocess.Answer{answer(100)}, true, "and its state is of", true},
		"unknown":                {[]nodeprocess.Answer{unknown}, true, "is unknown", true},
		"never sent":             {[]nodeprocess.Answer{answer(103)}, true, "no sample was sent", false},
		"back in time":           {[]nodeprocess.Answer{answer(101), answer(100)}, false, "went back in time", false},
		"known, then unknown":    {[]nodeprocess.Answer{answer(101), unknown}, false, "is unknown now", false},
		"another verdict":        {[]nodeprocess.Answer{{HTTP: http.StatusOK, Status: 1, Driving: "3", Modified: time.Unix(101, 0)}}, false, "drives normally", false},
		"refused":                {[]nodeprocess.Answer{{HTTP: http.StatusUnauthorized}}, false, "answered with 401", false},
	}
	for name, c := range cases {
		j := newJournal()
		samples := []sample{{"many0x1", 100}, {"many0x1", 101}, {"many0x1", 102}}
		j.offer(samples)
		j.acknowledge(samples[:2])
		var f Finding
		for i, a := range c.answers {
			if f = j.judge("many0x1", j.before("many0x1"), a, c.settled); f.Text != "" && i < len(c.answers)-1 {
				t.Errorf("%s: answer %d: %s", name, i, f.Text)
			}
		}
		if c.finding == "" && f.Text != "" || !strings.Contains(f.Text, c.finding) || f.Lost != c.lost || f.Lost && f.Missing.IsZero() {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A vehicle that was forgotten must not come back; one of which nobody knows may
// be either.
func TestJudgeForgotten(t *testing.T) {
	j := newJournal()
	j.offer([]sample{{"one1", 100}})
	j.acknowledge([]sample{{"one1", 100}})
	c := j.cars["one1"]
	c.unsure = true
	for _, a := range []nodeprocess.Answer{answer(100), unknown} {
		if f := j.judge("one1", j.before("one1"), a, true); f.Text != "" {
			t.Error(f.Text)
		}
	}
	c.unsure, c.forgotten = false, true
	if f := j.judge("one1", j.before("one1"), unknown, true); f.Text != "" {
		t.Error(f.Text)
	}
	if f := j.judge("one1", j.before("one1"), answer(100), true); !strings.Contains(f.Text, "is back") {
		t.Errorf("%q", f.Text)
	}
	if f := j.judge("one2", car{}, answer(100), true); f.Text == "" {
		t.Error("a vehicle that never reported has an answer, and nobody minds")
	}
}

// A loss is as old as the oldest sample that is missing, and of no age where nobody
// knows that.
func TestAfter(t *testing.T) {
	j := newJournal()
	for at := range int64(maxAcks) + 10 {
		j.offer([]sample{{"many0x1", 100 + at}})
		j.acknowledge([]sample{{"many0x1", 100 + at}})
		if c := j.before("many0x1"); at == 5 && (c.after(0) != c.acks[0].when || c.after(102) != c.acks[3].when || !c.after(105).IsZero()) {
			t.Errorf("%+v", c)
		}
	}
	c := j.before("many0x1")
	if len(c.acks) > maxAcks || !c.after(0).IsZero() || c.after(c.acks[0].at) != c.acks[1].when {
		t.Errorf("%+v", c)
	}
}
