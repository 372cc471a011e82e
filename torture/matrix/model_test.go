package matrix

import (
	"math/rand/v2"
	"testing"
	"time"

	"carstate/torture/row"
)

// Changes that never were are a finding, where there was time for them.
func TestChanges(t *testing.T) {
	for count, wrong := range map[int]int64{inCI: 2, inCI / 2: 0} {
		a := &row.Attempt{Count: count, Logf: t.Logf}
		c := new(changes)
		c.granted.Add(1)
		c.forgotten.Add(1)
		if c.judge(a); a.Outcome().Wrong != wrong {
			t.Errorf("%d: %+v", count, a.Outcome())
		}
	}
}

func TestModel(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	known := &car{vid: "CAR1", verdicts: [2]verdict{{value: "1"}, unknown}, made: [2]time.Time{now, now}}
	h := &holder{lives: []grant{{operations: [2]bool{true, false}, vids: map[string]bool{"CAR1": true}}}, secrets: []string{"old"}, expires: now.Add(time.Minute)}
	ask := func(op operation, c *car, secret string, at time.Time) []want {
		first, last := h.places()
		return (&asked{op: op, secret: secret, from: h, car: c, first: first, last: last, sent: at, received: at, forgotten: c.forgotten.Load(), forgetting: c.forgetting.Load()}).right()
	}
	only := func(what string, got []want, status int, v verdict) {
		t.Helper()
		if len(got) != 1 || got[0].status != status || got[0].verdict != v {
			t.Errorf("%s: %+v, want only %d %v", what, got, status, v)
		}
	}
	both := func(what string, got []want) {
		t.Helper()
		if len(got) != 2 {
			t.Errorf("%s: %+v, want two answers to be right", what, got)
		}
	}
	only("granted", ask(driving, known, "old", now), 200, verdict{value: "1"})
	only("operation not granted", ask(throttle, known, "old", now), 403, verdict{})
	only("vehicle not granted", ask(driving, &car{vid: "CAR2", verdicts: known.verdicts}, "old", now), 200, unknown)
	only("expired", ask(driving, known, "old", now.Add(time.Minute)), 401, verdict{})
	only("a stranger", (&asked{secret: "x", car: known}).right(), 401, verdict{})

	h.begin(func(g *grant) { delete(g.vids, "CAR1") })
	both("being taken away", ask(driving, known, "old", now))
	h.settle()
	only("taken away", ask(driving, known, "old", now), 200, unknown)
	h.begin(func(g *grant) { g.all = true })
	h.settle()
	known.forgetting.Store(true)
	both("being forgotten", ask(driving, known, "old", now))
	known.forgotten.Store(true)
	only("forgotten", ask(driving, known, "old", now), 200, unknown)

	other := &car{vid: "CAR3", verdicts: [2]verdict{{value: "1"}, {value: "1"}}}
	h.begin(func(g *grant) { g.unsure = "old" })
	both("being rotated", ask(driving, other, "old", now))
	h.begin(func(g *grant) { g.unsure, g.ends["old"] = "", now.Add(time.Second) })
	h.settle()
	only("within the overlap", ask(driving, other, "old", now), 200, verdict{value: "1"})
	only("after the overlap", ask(driving, other, "old", now.Add(time.Second)), 401, verdict{})
	h.begin(func(g *grant) { g.revoked = true })
	both("being revoked", ask(driving, other, "new", now))
	h.settle()
	only("revoked", ask(driving, other, "new", now), 401, verdict{})

	sandbox := &holder{sandbox: true, lives: []grant{{operations: [2]bool{true, true}}}}
	only("in the sandbox", (&asked{op: throttle, from: sandbox, car: &car{vid: "SandboxAnomaly"}, sent: now, received: now}).right(), 200, verdict{value: "0"})
	only("a real car from the sandbox", (&asked{op: throttle, from: sandbox, car: other, sent: now, received: now}).right(), 200, unknown)
}

// Equal times are told to be equal, and a difference of a tenth is not.
func TestPaired(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	measured := func(longer float64) (a []float64) {
		for range 4000 {
			v := 3 + longer + rng.NormFloat64()*0.3
			if rng.IntN(20) == 0 {
				v += rng.Float64() * 100 // something else ran
			}
			a = append(a, v)
		}
		return a
	}
	if difference, bound := paired(measured(0), measured(0)); bound > 0.06 || difference > bound {
		t.Errorf("equal times differ by %g, at most %g", difference, bound)
	}
	if difference, bound := paired(measured(0.3), measured(0)); bound < 0.25 || difference < 0.25 {
		t.Errorf("a tenth was found to be %g, at most %g", difference, bound)
	}
}
