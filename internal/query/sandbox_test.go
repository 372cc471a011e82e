package query_test

import (
	"errors"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"

	"example.org/carstate/internal/query"
)

// The time of the verdict is the time of the call.
func TestSandboxCycle(t *testing.T) {
	f := newFixture(t)
	p := start(t, f.Config).dial(t)
	value := regexp.MustCompile(`(?:state|system)":"(.)"`)
	at := func(path string, now time.Time) string {
		f.clock.Advance(now.Sub(f.clock.Now()))
		a := f.about(p, path, "SandboxCycle", "SANDBOX")
		if a.get("Last-Modified") != a.get("Date") {
			t.Fatalf("got %s, want Last-Modified as Date", a.raw)
		}
		return value.FindStringSubmatch(a.body)[1]
	}
	began := noon.Truncate(time.Minute)
	for path, want := range map[string]int{drivingPath: 3, throttlePath: 2} {
		seen := map[string]bool{}
		before := ""
		for minute := range 6 {
			now := began.Add(time.Duration(minute) * time.Minute)
			first, last := at(path, now), at(path, now.Add(time.Minute-1))
			if first != last || first == before {
				t.Errorf("minute %d: got %s then %s, want the same, and not %s as before", minute, first, last, before)
			}
			before, seen[first] = first, true
		}
		if len(seen) != want {
			t.Errorf("%s: got the values %v, want %d", path, seen, want)
		}
	}
}

// The sandbox makes its errors up.
func TestSandboxIsCountedApart(t *testing.T) {
	f := newFixture(t)
	p := start(t, f.Config).dial(t)
	for _, vid := range []string{access.SandboxUnavailable, access.SandboxRateLimited, access.SandboxJam} {
		f.about(p, drivingPath, vid, "SANDBOX")
	}
	all := testkit.Metric(t, f.metrics, query.MetricQueries)
	if apart := testkit.Metric(t, f.metrics, query.MetricQueries, "outcome", "sandbox"); all != 3 || apart != 3 {
		t.Errorf("got %v of %v queries counted apart, want 3 of 3", apart, all)
	}
}

func TestUsageIsCounted(t *testing.T) {
	f := newFixture(t)
	var starting atomic.Bool
	f.Ready = func(time.Time) error {
		if starting.Load() {
			return errors.New("starting")
		}
		return nil
	}
	p := start(t, f.Config).dial(t)
	ask := func(token, path, vid string) { f.about(p, path, vid, token) }
	starting.Store(true)
	ask("TEN_AN_HOUR", drivingPath, "CarJam")
	ask("REVOKED", drivingPath, "CarJam")
	starting.Store(false)
	ask("TOKEN", drivingPath, "CarJam")
	ask("TOKEN", throttlePath, "CarOld")
	ask("TOKEN", throttlePath, "Nobody")
	ask("TOKEN", drivingPath, "CarParked")
	ask("TOKEN", drivingPath, "not-a-vid")
	ask("TWO_A_MINUTE", throttlePath, "not-a-vid")
	ask("REVOKED", drivingPath, "not-a-vid")
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
			"TEN_AN_HOUR":  {Calls: 1, Refusals: 1, Reason: access.Unavailable},
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
