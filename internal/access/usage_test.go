package access_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
)

const day = 24 * time.Hour

func counting(t testing.TB) (*access.Tokens, *access.Grant) {
	t.Helper()
	var table access.Tokens
	tok, _ := issue(t, "d", noon)
	table.Put(tok)
	g, _ := table.Get(tok.Name)
	return &table, g
}

func TestUsageByDay(t *testing.T) {
	table, g := counting(t)
	midnight := noon.Add(12 * time.Hour)
	g.Count(access.CarDrivingState, access.Answered, midnight.Add(-1))
	g.Count(access.CarDrivingState, access.Answered, midnight)
	g.Count(access.ThrottleSystem, access.Stale, midnight)
	g.Count(access.CarDrivingState, access.Answered, midnight.Add(-1)) // a call that is counted late
	table.Put(g.Credential)                                            // a change of the record keeps the counters

	u := table.Usage(g.Name, midnight)
	today, all := u.Since(access.DayOf(midnight)), u.Since(0)
	if today[0][access.Answered] != 1 || today[1][access.Stale] != 1 || all[0][access.Answered] != 3 ||
		all[1][access.Stale] != 1 {
		t.Errorf("today %v, all %v", today, all)
	}
	later := midnight.Add(29 * day)
	if u = table.Usage(g.Name, later); u.Since(0)[0][access.Answered] != 1 {
		t.Errorf("after 29 days: %v", u.Since(0))
	}
	if u = table.Usage(g.Name, later.Add(day)); len(u.Days) != 0 || u.LastUsed.IsZero() {
		t.Errorf("after 30 days: %+v", u)
	}
}

func TestUsageTellsTheLastRefusal(t *testing.T) {
	table, g := counting(t)
	for i, o := range []access.Outcome{access.Answered, access.RateLimited, access.Unknown, access.InsufficientScope,
		access.NotDriving} {
		g.Count(access.CarDrivingState, o, noon.Add(time.Duration(i)*time.Minute))
	}
	u := table.Usage(g.Name, noon)
	if u.LastRefused != noon.Add(3*time.Minute) || u.Reason != access.InsufficientScope ||
		u.LastUsed != noon.Add(4*time.Minute) {
		t.Errorf("refused %v: %v; used %v", u.LastRefused, u.Reason, u.LastUsed)
	}
	g.Count(access.CarDrivingState, access.Replaced, noon.Add(time.Hour))
	if u = table.Usage(g.Name, noon); u.Reason != access.Replaced || u.LastUsed != noon.Add(4*time.Minute) {
		t.Errorf("a secret that does not count was used: %v, %v", u.Reason, u.LastUsed)
	}
	g.Count(access.CarDrivingState, access.RateLimited, noon.Add(time.Hour+time.Millisecond))
	if u = table.Usage(g.Name, noon); u.Reason != access.RateLimited || u.LastRefused != noon.Add(time.Hour) {
		t.Errorf("got %v: %v, want the newest refusal of the second: rate_limited", u.LastRefused, u.Reason)
	}
}

// TestUsageOfNodes checks that the usage of all nodes is summed, and that the usage that a node
// stored before its restart is counted once.
func TestUsageOfNodes(t *testing.T) {
	table, g := counting(t)
	part := func(n int64, at time.Time) access.Usage {
		d := access.DayCalls{Day: access.DayOf(noon)}
		d.Calls[0][access.Answered] = n
		return access.Usage{Days: []access.DayCalls{d}, LastUsed: at, LastRefused: at, Reason: access.RateLimited}
	}
	table.NoteUsage(g.Name, "me", part(10, noon.Add(-time.Hour))) // it may arrive before the token's record
	table.NoteUsage(g.Name, "other", part(100, noon))
	table.NoteUsage(g.Name, "other", part(200, noon.Add(time.Minute)))
	g.Count(access.CarDrivingState, access.Answered, noon)

	all, mine := table.Usage(g.Name, noon), table.UsageOn("me", g.Name, noon)
	if n := all.Since(0)[0][access.Answered]; n != 211 {
		t.Errorf("%d calls in all", n)
	}
	if n := mine.Since(0)[0][access.Answered]; n != 11 {
		t.Errorf("%d calls here", n)
	}
	if all.LastUsed != noon.Add(time.Minute) || all.Reason != access.RateLimited ||
		all.LastRefused != noon.Add(time.Minute) {
		t.Errorf("got usage %+v, want the last use and refusal of the other node", all)
	}
	table.ForgetUsage(g.Name, "other")
	if all = table.Usage(g.Name, noon); all.Since(0)[0][access.Answered] != 11 ||
		all.LastUsed != noon.Add(time.Minute) {
		t.Errorf("after a node was dropped: %+v", all)
	}
}

// TestCountConcurrent checks that no call is lost when calls are counted concurrently on several
// days. After more than UsageDays days, the usage must contain only the last UsageDays days.
func TestCountConcurrent(t *testing.T) {
	table, g := counting(t)
	const workers, days, each = 8, 100, 50
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				g.Count(access.CarDrivingState, access.Answered, noon)
				g.Count(access.ThrottleSystem, access.RateLimited, noon.Add(day))
			}
		})
	}
	wg.Wait()
	sum := access.Calls{}
	u := table.Usage(g.Name, noon.Add(day))
	if sum = u.Since(0); sum[0][access.Answered] != workers*each || sum[1][access.RateLimited] != workers*each {
		t.Errorf("got calls %v, want %d for each operation", sum, workers*each)
	}
	for d := range days {
		g.Count(access.CarDrivingState, access.Answered, noon.Add(time.Duration(d)*day))
	}
	if u = table.Usage(g.Name, noon.Add((days-1)*day)); len(u.Days) != access.UsageDays ||
		u.Since(0)[0][access.Answered] != access.UsageDays {
		t.Errorf("%d days are held", len(u.Days))
	}
}

// TestUsageOfDaysToCome checks calls that a fast clock has counted on a future day. They must not
// be shown before that day.
func TestUsageOfDaysToCome(t *testing.T) {
	table, g := counting(t)
	ahead := noon.Add(3 * day)
	g.Count(access.CarDrivingState, access.Answered, noon)
	g.Count(access.CarDrivingState, access.Answered, ahead)
	table.NoteUsage(g.Name, "other",
		access.Usage{Days: []access.DayCalls{{Day: access.DayOf(ahead), Calls: access.Calls{{7}}}}})
	if u := table.Usage(g.Name, noon); u.Since(access.DayOf(noon))[0][access.Answered] != 1 ||
		u.Since(0)[0][access.Answered] != 1 {
		t.Errorf("got calls %v, want 1 today and none later", u.Since(0))
	}
	if u := table.Usage(g.Name, ahead); u.Since(access.DayOf(ahead))[0][access.Answered] != 8 {
		t.Errorf("when the day has come: %v", u.Since(access.DayOf(ahead)))
	}
	// The calls of that future day are kept until the day has come.
	if u := table.UsageOn("me", g.Name, noon); u.Since(0)[0][access.Answered] != 2 {
		t.Errorf("to be stored: %v", u.Since(0))
	}
}

// TestLastUseOfAClockAhead checks a node whose clock was fast. Once the clock is right, the times
// that it noted before must not hide later uses and refusals, on this node and on others.
func TestLastUseOfAClockAhead(t *testing.T) {
	y2038 := time.Date(2038, 1, 19, 3, 14, 9, 0, time.UTC)
	table, g := counting(t)
	g.Count(access.CarDrivingState, access.Answered, noon)
	g.Count(access.CarDrivingState, access.RateLimited, noon)
	table.NoteUsage(g.Name, "other", access.Usage{LastUsed: noon.Add(-time.Hour), LastRefused: noon.Add(-time.Hour),
		Reason: access.RateLimited})
	table.NoteUsage(g.Name, "ahead", access.Usage{LastUsed: y2038, LastRefused: y2038, Reason: access.Expired})
	g.Count(access.CarDrivingState, access.Answered, y2038)
	g.Count(access.CarDrivingState, access.Expired, y2038)
	if u := table.Usage(g.Name, noon); u.LastUsed != noon.Add(-time.Hour) || u.LastRefused != u.LastUsed ||
		u.Reason != access.RateLimited {
		t.Errorf("right after it, it was used %v, and refused %v: %v", u.LastUsed, u.LastRefused, u.Reason)
	}
	if !g.LastUsed(noon).IsZero() {
		t.Errorf("right after it, it was used %v", g.LastUsed(noon))
	}
	now := noon.Add(2 * time.Minute)
	g.Count(access.CarDrivingState, access.Answered, now)
	g.Count(access.CarDrivingState, access.InsufficientScope, now)
	for what, u := range map[string]access.Usage{"all": table.Usage(g.Name, now),
		"to be stored": table.UsageOn("me", g.Name, now)} {
		if u.LastUsed != now || u.LastRefused != now || u.Reason != access.InsufficientScope {
			t.Errorf("%s: used %v, refused %v: %v", what, u.LastUsed, u.LastRefused, u.Reason)
		}
	}
	if g.LastUsed(now) != now {
		t.Errorf("used %v", g.LastUsed(now))
	}

	// When this node next stores its usage, it drops the times that it stored while its clock was
	// fast.
	table, g = counting(t)
	table.NoteUsage(g.Name, "me", access.Usage{LastUsed: y2038, LastRefused: y2038, Reason: access.Expired})
	g.Count(access.CarDrivingState, access.Answered, now)
	if u := table.UsageOn("me", g.Name, now); u.LastUsed != now || !u.LastRefused.IsZero() || u.Reason != 0 {
		t.Errorf("to be stored: used %v, refused %v: %v", u.LastUsed, u.LastRefused, u.Reason)
	}
	// A node whose clock is slow by some days drops nothing.
	if u := table.UsageOn("me", g.Name, now.Add(-3*day)); u.LastUsed != now {
		t.Errorf("with the clock behind, to be stored: used %v", u.LastUsed)
	}
}

// TestUsageOfClocksAhead checks a clock that is fast many times. Calls that were counted on real
// days must stay, and the number of stored days must be bounded.
func TestUsageOfClocksAhead(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		table, g := counting(outer)
		var kept int64
		now := noon
		for range rapid.IntRange(1, 40).Draw(t, "days") {
			for range rapid.IntRange(0, 4).Draw(t, "jumps") {
				for range rapid.IntRange(0, 7).Draw(t, "jumps in a row") {
					ahead := time.Duration(rapid.IntRange(1, 100).Draw(t, "ahead"))
					g.Count(access.CarDrivingState, access.Answered, now.Add(ahead*1000*day))
				}
				g.Count(access.CarDrivingState, access.Answered, now)
				kept++
			}
			mine := table.UsageOn("me", g.Name, now)
			if len(mine.Days) > access.UsageDays+7 {
				t.Fatalf("%d days are stored", len(mine.Days))
			}
			now = now.Add(day)
		}
		now = now.Add(-day)
		u := table.Usage(g.Name, now)
		if got := u.Since(0)[0][access.Answered]; now.Sub(noon) < access.UsageDays*day && got != kept {
			t.Fatalf("%d calls of %d", got, kept)
		}
	})
}

// TestUsageOfAClockBehind checks that no calls of later days are lost while the clock is slow.
func TestUsageOfAClockBehind(t *testing.T) {
	table, g := counting(t)
	for d := range access.UsageDays {
		g.Count(access.CarDrivingState, access.Answered, noon.Add(time.Duration(d)*day))
	}
	today := noon.Add((access.UsageDays - 1) * day)
	for _, behind := range []time.Duration{day, 7 * day} {
		g.Count(access.CarDrivingState, access.Answered, today.Add(-behind))
	}
	if u := table.Usage(g.Name, today); u.Since(0)[0][access.Answered] != access.UsageDays+2 ||
		u.Since(access.DayOf(today))[0][access.Answered] != 1 {
		t.Errorf("got calls %v, want %d in total and 1 today", u.Since(0), access.UsageDays+2)
	}
}

func TestCountAllocatesOnceADay(t *testing.T) {
	_, g := counting(t)
	g.Count(access.CarDrivingState, access.Answered, noon)
	if n := testing.AllocsPerRun(100, func() { g.Count(access.CarDrivingState, access.RateLimited, noon) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOutcomeNames checks that the names and numbers of outcomes do not change, because they are
// stored and shown. New outcomes may be added.
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
