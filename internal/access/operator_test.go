package access_test

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/testkit"
)

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
		t.Errorf("before anything came: %+v", seen)
	}
	if _, err := table.Verify([]byte(key), noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, hash := access.NewSecret(access.SourceKind)
	testkit.NoError(t, src.Rotate(hash, time.Hour, noon))
	table.Put(src)
	if seen := seen(); !seen.LastSeen.Equal(noon.Add(time.Minute)) || !seen.LastRefused.IsZero() {
		t.Errorf("after a use: %+v", seen)
	}
	if _, err := table.Verify([]byte(key), noon.Add(2*time.Hour)); !errors.Is(err, access.ErrReplaced) {
		t.Fatal(err)
	}
	if seen := seen(); !seen.LastRefused.Equal(noon.Add(2*time.Hour)) || seen.Reason != access.KeyReplaced ||
		seen.Text != "the source key is refused: it was replaced by a newer one" ||
		!seen.LastSeen.Equal(noon.Add(time.Minute)) {
		t.Errorf("after the old key: %+v", seen)
	}
	// Noted while the clock was fast, it must not hide the second one.
	for _, at := range []time.Duration{4000 * 24 * time.Hour, 3 * time.Hour} {
		if _, err := table.Verify([]byte(key), noon.Add(at)); !errors.Is(err, access.ErrReplaced) {
			t.Fatal(err)
		}
	}
	if seen := seen(); !seen.LastRefused.Equal(noon.Add(3 * time.Hour)) {
		t.Errorf("after the clock was ahead: %+v", seen)
	}
	g, _ := table.Get("gateway")
	g.CountSamples(access.SampleCounts{Accepted: 7, Late: 3, Ignored: 2, Unused: 5})
	g.CountRefused(access.Impossible, 3)
	g.NoteRefused(access.Impossible, "too fast", noon.Add(4*time.Hour))
	table.Put(src)
	if seen := seen(); seen.Accepted != 7 || seen.Ignored != 2 || seen.Late != 3 || seen.Unused != 5 || seen.Refused[access.Impossible] != 3 ||
		seen.Reason != access.Impossible || seen.Text != "too fast" ||
		!seen.LastRefused.Equal(noon.Add(4*time.Hour)) {
		t.Errorf("after telemetry: %+v", seen)
	}
	src.Created = noon.Add(3 * time.Hour)
	table.Put(src)
	if seen := seen(); !reflect.DeepEqual(seen, access.SourceActivity{}) {
		t.Errorf("another source of this name: %+v", seen)
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

// A wrong password is always counted, but hides no other reason within ten minutes.
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
			t.Fatal("a wrong password was accepted")
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
