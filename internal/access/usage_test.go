package access_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
)

func counting(t testing.TB) (*access.Tokens, *access.Grant) {
	t.Helper()
	var table access.Tokens
	tok, _ := issue(t, "d", noon)
	table.Put(tok)
	g, _ := table.Get(tok.Name)
	return &table, g
}

func TestUsage(t *testing.T) {
	table, g := counting(t)
	y2038 := time.Date(2038, 1, 19, 3, 14, 0, 0, time.UTC)
	var want access.Usage
	for i, c := range []struct {
		outcome access.Outcome
		at      time.Time
		change  func(u *access.Usage)
	}{
		{access.Answered, noon, func(u *access.Usage) { u.LastUsed = noon }},
		{access.Stale, noon.Add(59 * time.Second), func(*access.Usage) {}}, // in whole minutes
		{access.RateLimited, noon.Add(time.Minute), func(u *access.Usage) {
			*u = access.Usage{u.Calls, 1, noon.Add(time.Minute), noon.Add(time.Minute), access.RateLimited}
		}},
		{access.Replaced, noon.Add(time.Hour), func(u *access.Usage) { // not valid: no use
			u.Refusals, u.LastRefused, u.Reason = 2, noon.Add(time.Hour), access.Replaced
		}},
		{access.InsufficientScope, noon.Add(time.Hour + time.Millisecond), func(u *access.Usage) {
			*u = access.Usage{u.Calls, 3, noon.Add(time.Hour), noon.Add(time.Hour), access.InsufficientScope}
		}},
		{access.Expired, y2038, func(u *access.Usage) { // the clock is fast: no such times are shown
			*u = access.Usage{u.Calls, 4, noon.Add(time.Hour), time.Time{}, 0}
		}},
		{access.Answered, y2038, func(u *access.Usage) { u.LastUsed = time.Time{} }},
		{access.Unavailable, noon.Add(time.Hour), func(u *access.Usage) { // and it hides no later call
			*u = access.Usage{u.Calls, 5, noon.Add(time.Hour), noon.Add(time.Hour), access.Unavailable}
		}},
	} {
		g.Count(c.outcome, c.at)
		want.Calls++
		c.change(&want)
		table.Put(g.Credential)
		if got := g.Usage(noon.Add(time.Hour)); got != want {
			t.Errorf("after call %d, %s: got %+v, want %+v", i, c.outcome, got, want)
		}
	}
}

// A time of a fast clock hides no other.
func TestUsageOfNodes(t *testing.T) {
	table, g := counting(t)
	stored := access.Usage{Calls: 100, Refusals: 10, LastUsed: noon.Add(-time.Hour)}
	table.NoteUsage(g.Name, stored, false)
	g.Count(access.Answered, noon)
	g.Count(access.RateLimited, noon)
	mine := table.UsageToStore(g.Name, stored, noon)
	want := access.Usage{Calls: 102, Refusals: 11, LastUsed: noon, LastRefused: noon, Reason: access.RateLimited}
	if got := g.Usage(noon); got != want || mine != want || !slices.Equal(table.Unstored(), []string{g.Name}) {
		t.Errorf("got %+v, to be stored %+v, want both %+v", got, mine, want)
	}
	g.Count(access.Answered, noon) // after it was sent to the store
	table.NoteUsage(g.Name, mine, true)
	if want.Calls++; g.Usage(noon) != want || len(table.Unstored()) != 1 {
		t.Errorf("after storing: got %+v, want %+v", g.Usage(noon), want)
	}
	mine = table.UsageToStore(g.Name, mine, noon)
	table.NoteUsage(g.Name, mine, true)
	mine.Calls += 7
	mine.LastUsed, mine.LastRefused = noon.Add(48*time.Hour), noon.Add(48*time.Hour)
	table.NoteUsage(g.Name, mine, false) // of another node
	if want.Calls += 7; g.Usage(noon) != want || len(table.Unstored()) != 0 {
		t.Errorf("after another node has stored: got %+v, want %+v", g.Usage(noon), want)
	}
}

func TestCountConcurrent(t *testing.T) {
	_, g := counting(t)
	const workers, each = 8, 50
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				g.Count(access.Answered, noon)
				g.Count(access.RateLimited, noon)
			}
		})
	}
	wg.Wait()
	if u := g.Usage(noon); u.Calls != 2*workers*each || u.Refusals != workers*each {
		t.Errorf("got %+v, want %d calls, half of them refused", u, 2*workers*each)
	}
	if n := testing.AllocsPerRun(100, func() { g.Count(access.RateLimited, noon) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// They are stored and shown. New outcomes may be added.
func TestOutcomeNames(t *testing.T) {
	names := []string{"answered", "unknown", "stale", "not_driving", "insufficient_scope", "rate_limited",
		"unavailable", "expired", "revoked", "replaced", "invalid_request"}
	for i, want := range names {
		if got := access.Outcome(i).String(); got != want || !access.Outcome(i).Known() {
			t.Errorf("%d is %s, not %s", i, got, want)
		}
	}
	if access.Outcome(len(names)).Known() {
		t.Error("an outcome has no name here")
	}
}
