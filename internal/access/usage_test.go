package access_test

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
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
	g.Count(access.Answered, noon)
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
		t.Errorf("Count: got %v allocations, want 0", n)
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
		t.Errorf("outcome %d: got it known, want its name here", len(names))
	}
}

// A sighting stays when the record changes, and goes with the source.
func TestSourceSighting(t *testing.T) {
	var table access.Sources
	src, key := addSource(t, "gateway")
	table.Put(src)
	seen := func() access.SourceActivity {
		g, _ := table.Get("gateway")
		return g.Seen()
	}
	if seen := seen(); !reflect.DeepEqual(seen, access.SourceActivity{}) {
		t.Errorf("before anything came: got %+v, want nothing", seen)
	}
	_, err := table.Verify([]byte(key), noon.Add(time.Minute))
	testkit.NoError(t, err)
	_, hash := access.NewSecret(access.SourceKind)
	testkit.NoError(t, src.Rotate(hash, time.Hour, noon))
	table.Put(src)
	if seen := seen(); !seen.LastSeen.Equal(noon.Add(time.Minute)) || !seen.LastRefused.IsZero() {
		t.Errorf("after a use: got %+v, want it seen at %v, not refused", seen, noon.Add(time.Minute))
	}
	if _, err := table.Verify([]byte(key), noon.Add(2*time.Hour)); !errors.Is(err, access.ErrReplaced) {
		t.Fatalf("the replaced key: got %v, want %v", err, access.ErrReplaced)
	}
	if seen := seen(); !seen.LastRefused.Equal(noon.Add(2*time.Hour)) || seen.Reason != access.KeyReplaced ||
		seen.Text != "the source key is refused: it was replaced by a newer one" ||
		!seen.LastSeen.Equal(noon.Add(time.Minute)) {
		t.Errorf("after the old key: got %+v, want %v at %v", seen, access.KeyReplaced, noon.Add(2*time.Hour))
	}
	for _, at := range []time.Duration{4000 * 24 * time.Hour, 3 * time.Hour} {
		if _, err := table.Verify([]byte(key), noon.Add(at)); !errors.Is(err, access.ErrReplaced) {
			t.Fatalf("the replaced key after %v: got %v, want %v", at, err, access.ErrReplaced)
		}
	}
	if seen := seen(); !seen.LastRefused.Equal(noon.Add(3 * time.Hour)) {
		t.Errorf("after the clock was ahead: got %+v, want a refusal at %v", seen, noon.Add(3*time.Hour))
	}
	g, _ := table.Get("gateway")
	g.CountSamples(access.SampleCounts{Accepted: 7, Late: 3, Ignored: 2, Unused: 5})
	g.CountRefused(access.Impossible, 3)
	g.NoteRefused(access.Impossible, "too fast", noon.Add(4*time.Hour))
	table.Put(src)
	if seen := seen(); seen.Accepted != 7 || seen.Ignored != 2 || seen.Late != 3 || seen.Unused != 5 || seen.Refused[access.Impossible] != 3 ||
		seen.Reason != access.Impossible || seen.Text != "too fast" || !seen.LastRefused.Equal(noon.Add(4*time.Hour)) {
		t.Errorf("after telemetry: got %+v, want 7 accepted, 3 late, 3 impossible, too fast", seen)
	}
	src.Created = noon.Add(3 * time.Hour)
	table.Put(src)
	if seen := seen(); !reflect.DeepEqual(seen, access.SourceActivity{}) {
		t.Errorf("another source of this name: got %+v, want nothing", seen)
	}
}

func gateway(t *testing.T) (*access.Sources, *access.Grant) {
	t.Helper()
	var table access.Sources
	src, _ := addSource(t, "gateway")
	table.Put(src)
	g, _ := table.Get("gateway")
	return &table, g
}

// Also of one second; one is to be logged at most once a minute.
func TestRefusals_NewestFirst(t *testing.T) {
	_, g := gateway(t)
	const n = 3 * access.MaxNoted
	for i := range n {
		g.NoteRefused(access.Impossible, strconv.Itoa(i), noon.Add(time.Duration(i)*time.Millisecond))
		if seen := g.Seen(); seen.Text != strconv.Itoa(i) || !seen.LastRefused.Equal(noon) {
			t.Errorf("got last refusal %v %q, want %v %d", seen.LastRefused, seen.Text, noon, i)
		}
	}
	noted := g.Seen().Noted
	if len(noted) != access.MaxNoted {
		t.Errorf("got %d refusals, want %d", len(noted), access.MaxNoted)
	}
	for i, r := range noted {
		if want := (access.NotedRefusal{At: noon, Reason: access.Impossible, Text: strconv.Itoa(n - 1 - i)}); r != want {
			t.Errorf("got refusal %+v, want %+v", r, want)
		}
	}
	for i, step := range []struct {
		at     time.Duration
		due    bool
		others int
	}{{0, true, n - 1}, {2 * time.Minute, false, 0}, {2 * time.Minute, true, 0}, {3*time.Minute - 1, false, 0},
		{3 * time.Minute, true, 0}} {
		if i > 1 {
			g.NoteRefused(access.Malformed, "x", noon)
		}
		if _, others, due := g.Unlogged(noon.Add(step.at)); due != step.due || others != step.others && i < 4 {
			t.Errorf("%d: got due %t with %d others, want %+v", i, due, others, step)
		}
	}
}

func TestLastRefusal_StrangersHideNone(t *testing.T) {
	table, g := gateway(t)
	for i, step := range []struct {
		at       time.Duration
		own      bool // a sample of the source
		want     access.Refusal
		noted    time.Duration
		wrongSum int64
	}{
		{0, false, access.WrongKey, 0, 1},
		{time.Minute, false, access.WrongKey, time.Minute, 2},
		{2 * time.Minute, true, access.Impossible, 2 * time.Minute, 2},
		{3 * time.Minute, false, access.Impossible, 2 * time.Minute, 3},
		{12 * time.Minute, false, access.Impossible, 2 * time.Minute, 4},
		{12*time.Minute + time.Second, false, access.WrongKey, 12*time.Minute + time.Second, 5},
		{13 * time.Minute, true, access.Impossible, 13 * time.Minute, 5},
		{time.Minute, false, access.WrongKey, time.Minute, 6}, // the clock was ahead
	} {
		if step.own {
			g.NoteRefused(access.Impossible, "too fast", noon.Add(step.at))
		} else if _, err := table.VerifyNamed("gateway", []byte("wrong"), noon.Add(step.at)); err == nil {
			t.Fatalf("%d: got a wrong password accepted, want an error", i)
		}
		seen := g.Seen()
		if seen.Reason != step.want || !seen.LastRefused.Equal(noon.Add(step.noted)) ||
			seen.Refused[access.WrongKey] != step.wrongSum || len(seen.Noted) != []int{1, 1, 2, 2, 2, 3, 4, 5}[i] {
			t.Errorf("%d: got %v at %v, %d wrong keys, want %+v", i, seen.Reason, seen.LastRefused,
				seen.Refused[access.WrongKey], step)
		}
	}
}

func TestLastRefusal_LongText(t *testing.T) {
	_, g := gateway(t)
	for text, want := range map[string]string{
		strings.Repeat("x", 200): strings.Repeat("x", 200),
		strings.Repeat("x", 201): strings.Repeat("x", 197) + "…",
		strings.Repeat("ä", 101): strings.Repeat("ä", 98) + "…",
	} {
		g.NoteRefused(access.Impossible, text, noon)
		if got := g.Seen().Text; got != want {
			t.Errorf("got %d bytes %q, want %q", len(got), got, want)
		}
	}
}
