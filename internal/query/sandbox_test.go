package query

import (
	"errors"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"

	"github.com/prometheus/client_golang/prometheus"
)

// The time of the verdict is the time of the call.
func TestSandboxCycle(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	value := regexp.MustCompile(`(?:state|system)":"(.)"`)
	at := func(path string, now time.Time) string {
		w := a.about(path, "SandboxCycle", f.secrets["SANDBOX"], now)
		if w.Status != 200 || w.header("Last-Modified") != w.header("Date") {
			t.Fatalf("%d, %s, %s", w.Status, w.header("Last-Modified"), w.header("Date"))
		}
		return value.FindStringSubmatch(string(w.Body))[1]
	}
	start := noon.Truncate(time.Minute)
	for path, want := range map[string]int{drivingPath: 3, throttlePath: 2} {
		seen := map[string]bool{}
		before := ""
		for minute := range 6 {
			now := start.Add(time.Duration(minute) * time.Minute)
			first, last := at(path, now), at(path, now.Add(time.Minute-1))
			if first != last || first == before {
				t.Errorf("minute %d: %s then %s, before that %s", minute, first, last, before)
			}
			before, seen[first] = first, true
		}
		if len(seen) != want {
			t.Errorf("%s: values %v", path, seen)
		}
	}
}

// The sandbox makes its errors up.
func TestSandboxIsCountedApart(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	for _, vid := range []string{access.SandboxUnavailable, access.SandboxRateLimited, access.SandboxJam} {
		m.observe(a.about(drivingPath, vid, f.secrets["SANDBOX"], noon), 0)
	}
	for o := range outcomeCount {
		want := 0.0
		if o == sandboxed {
			want = 3
		}
		if got := testkit.Metric(t, reg, MetricQueries, "outcome", o.String()); got != want {
			t.Errorf("queries with outcome %s: got %v, want %v", o, got, want)
		}
	}
}

func TestUsageIsCounted(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	ask := func(token, path, vid string) { a.about(path, vid, f.secrets[token], noon) }
	ask("TOKEN", drivingPath, "CarJam")
	ask("TOKEN", throttlePath, "CarOld")
	ask("TOKEN", throttlePath, "Nobody")
	ask("TOKEN", drivingPath, "CarParked")
	ask("TOKEN", drivingPath, "not-a-vid")
	ask("TWO_A_MINUTE", throttlePath, "not-a-vid")
	ask("REVOKED", drivingPath, "not-a-vid") // counted for no token
	ask("UNKNOWN", drivingPath, "not-a-vid")
	ask("DRIVING", throttlePath, "CarJam")
	for range 3 {
		ask("TWO_A_MINUTE", drivingPath, "CarJam")
	}
	ask("EXPIRED", drivingPath, "CarJam")
	ask("REVOKED", drivingPath, "CarJam")
	ask("REPLACED", throttlePath, "CarJam")
	ask("SANDBOX", drivingPath, access.SandboxUnavailable)

	for _, g := range f.Tokens.List() {
		want := map[string]access.Usage{
			"TOKEN":        {Calls: 5, Refusals: 1, Reason: access.InvalidRequest},
			"DRIVING":      {Calls: 1, Refusals: 1, Reason: access.InsufficientScope},
			"TWO_A_MINUTE": {Calls: 4, Refusals: 2, Reason: access.RateLimited},
			"EXPIRED":      {Calls: 1, Refusals: 1, Reason: access.Expired},
			"REVOKED":      {Calls: 1, Refusals: 1, Reason: access.Revoked},
			"REPLACED":     {Calls: 1, Refusals: 1, Reason: access.Replaced},
			"SANDBOX":      {Calls: 1, Refusals: 1, Reason: access.Unavailable},
		}
		got := g.Usage(noon)
		got.LastUsed, got.LastRefused = time.Time{}, time.Time{}
		if got != want[g.Developer] {
			t.Errorf("usage of %s: got %+v, want %+v", g.Developer, got, want[g.Developer])
		}
	}
}

// A node that cannot answer shows a valid token's rate limit, and counts the call.
func TestRefuseRequest_LimitAndUsage(t *testing.T) {
	f := newFixture(t)
	var ready error
	f.Ready = func(time.Time) error { return ready }
	a := f.answerer()
	ask := func(token, vid string, starting bool) *response {
		var w response
		r := get(drivingPath + "?vid=" + vid + "&access_token=" + f.secrets[token])
		r.Peer, ready = netip.MustParseAddr("192.0.2.1"), nil
		if starting {
			ready = errors.New("starting")
		}
		a.answer(r, noon, &w)
		return &w
	}
	w := ask("TWO_A_MINUTE", "CarJam", true)
	if w.Status != 503 || w.header("RateLimit-Policy") != `"token";q=2;w=60` ||
		w.header("RateLimit") != `"token";r=2;t=30` || w.header("Retry-After") != "5" {
		t.Errorf("starting: %d %s", w.Status, w.text())
	}
	for range 200 {
		for _, token := range []string{"UNKNOWN", "REVOKED", "CUT"} {
			if w := ask(token, "CarJam", true); w.Status != 503 || w.header("RateLimit-Policy") != "" {
				t.Fatalf("%s, starting: %s", token, w.text())
			}
			if w := ask(token, "Car-Jam", false); w.Status != 400 || w.header("RateLimit-Policy") != "" {
				t.Fatalf("%s, bad vid: %s", token, w.text())
			}
		}
	}
	if w := ask("UNKNOWN", "CarJam", false); w.Status != 401 {
		t.Errorf("an unknown token after bad requests: got %s, want 401", w.text())
	}
	for _, g := range f.Tokens.List() {
		var want int64
		if g.Developer == "TWO_A_MINUTE" {
			want = 1
		}
		if got := g.Usage(noon); got.Calls != want || got.Refusals != want {
			t.Errorf("usage of %s: got %+v, want %d refused calls", g.Developer, got, want)
		}
	}
}
