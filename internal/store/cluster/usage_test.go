package cluster

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"carstate/internal/access"
)

func TestUsageRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want access.Usage
		for i := range rapid.IntRange(0, access.UsageDays).Draw(t, "days") {
			d := access.DayCalls{Day: 20_000 + int64(2*i)}
			for op := range d.Calls {
				for o := range d.Calls[op] {
					d.Calls[op][o] = rapid.SampledFrom([]int64{0, 0, 1, 86_400_000}).Draw(t, "calls")
				}
			}
			want.Days = append(want.Days, d)
		}
		if rapid.Bool().Draw(t, "used") {
			want.LastUsed = time.Unix(rapid.Int64Range(1, 1e10).Draw(t, "at"), 0).UTC()
			want.LastRefused, want.Reason = want.LastUsed.Add(time.Second), access.RateLimited
		}
		if got := packUsage(want, time.Unix(0, 0)).usage(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v became %+v", want, got)
		}
	})
}

// keeping runs a keeper of its own until the test ends or stop is called, which
// stores what was counted.
func keeping(t *testing.T, e *Engine) (k *Keeper, stop func()) {
	t.Helper()
	k = e.NewKeeper(new(access.Tables))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	caughtUp := make(chan struct{})
	running.Go(func() {
		if err := k.RunTokens(ctx, func() { close(caughtUp) }); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { k.KeepUsage(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	<-caughtUp
	return k, stop
}

func issueOn(t *testing.T, k *Keeper) *access.Grant {
	t.Helper()
	tok, _, err := access.Issue(access.TokenRequest{
		Developer: "Ada", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Create(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	g, _ := k.tables.Tokens.Get(tok.Name)
	return g
}

// A node that starts again goes on where it was, with the same name; its own
// records, which come back on the feed, are not counted twice; and one that is
// killed has lost what it had not stored, no more.
func TestUsageSurvivesRestarts(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	id, name := "", ""
	for round := range 3 {
		e, err := Open(t.Context(), Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		k, stop := keeping(t, e)
		if round == 0 {
			id, name = issueOn(t, k).Name, e.node.id
		}
		if e.node.id != name {
			t.Errorf("the node is called %s and then %s", name, e.node.id)
		}
		g, ok := k.tables.Tokens.Get(id)
		if !ok {
			t.Fatal("the token is gone")
		}
		for range 3 {
			g.Count(access.CarDrivingState, access.Answered, now)
			k.storeUsage()
		}
		g.Count(access.ThrottleSystem, access.RateLimited, now)
		stop() // stores the rest
		u := k.tables.Tokens.Usage(id, now)
		if got := u.Since(0); got[0][access.Answered] != int64(3*(round+1)) || got[1][access.RateLimited] != int64(round+1) {
			t.Errorf("round %d: %v", round, got)
		}
		if u.Reason != access.RateLimited || u.LastUsed.IsZero() {
			t.Errorf("round %d: %+v", round, u)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Only what was called since is stored, and never more than once a pass.
func TestUsageIsStoredOnlyWhenItChanged(t *testing.T) {
	e, err := Open(t.Context(), Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	k, stop := keeping(t, e)
	defer stop()
	var grants []*access.Grant
	for range usageBatch + 10 {
		tok, _, err := access.Issue(access.TokenRequest{Developer: "Ada", Operations: access.AllOperations}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		k.tables.Tokens.Put(tok)
		g, _ := k.tables.Tokens.Get(tok.Name)
		grants = append(grants, g)
	}
	stored := func() int {
		n := 0
		for _, g := range grants {
			_, rev, err := e.lastRecord(t.Context(), Tokens, "tokenuse."+g.Name+"."+e.node.id)
			if err != nil {
				t.Fatal(err)
			}
			if rev != 0 {
				n++
			}
		}
		return n
	}
	k.storeUsage()
	if n := stored(); n != 0 {
		t.Fatalf("%d records without a call", n)
	}
	for _, g := range grants {
		g.Count(access.ThrottleSystem, access.Unknown, time.Now())
	}
	k.storeUsage()
	if n := stored(); n != len(grants) {
		t.Fatalf("%d records of %d", n, len(grants))
	}
	_, before, _ := e.lastRecord(t.Context(), Tokens, "tokenuse."+grants[0].Name+"."+e.node.id)
	grants[1].Count(access.ThrottleSystem, access.Unknown, time.Now())
	k.storeUsage()
	_, after, _ := e.lastRecord(t.Context(), Tokens, "tokenuse."+grants[0].Name+"."+e.node.id)
	if before != after {
		t.Error("a token that was not called was stored again")
	}
}

// Parts of nodes that are long gone are dropped; the last use stays known. What
// was stored before there were parts, or by a newer version, does no harm.
func TestUsageOfNodesThatAreGone(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(t.Context(), Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	k, stop := keeping(t, e)
	g := issueOn(t, k)
	now := time.Now().UTC().Truncate(time.Second)
	put := func(node string, r usageRecord) {
		subject := "tokenuse." + g.Name + node
		record, err := sealJSON(subject, r)
		if err != nil {
			t.Fatal(err)
		}
		seq, err := e.storeBatch(t.Context(), Tokens, []write{{subject: subject, record: record}})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.tokenFeed.wait(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	used := now.Add(-40 * 24 * time.Hour)
	calls := access.Usage{Days: []access.DayCalls{{Day: access.DayOf(now), Calls: access.Calls{{5}}}}, LastUsed: used}
	put("", usageRecord{LastUsed: used.Add(-time.Hour)})
	put(".GONE", packUsage(calls, now.Add(-usageIdle-time.Minute)))
	put(".THERE", packUsage(calls, now.Add(-usageIdle+time.Minute)))
	put(".NEWER", usageRecord{Version: usageVersion + 1, LastUsed: now})
	if u := k.tables.Tokens.Usage(g.Name, now); u.Since(0)[0][0] != 10 || u.LastUsed != used {
		t.Errorf("before: %+v", u)
	}
	k.pruneUsage(t.Context())
	for node, there := range map[string]bool{"": true, ".GONE": false, ".THERE": true, ".NEWER": true, "." + e.node.id: true} {
		_, rev, err := e.lastRecord(t.Context(), Tokens, "tokenuse."+g.Name+node)
		if err != nil || (rev != 0) != there {
			t.Errorf("tokenuse.ID%s is there: %t, %v", node, rev != 0, err)
		}
	}
	if u := k.tables.Tokens.Usage(g.Name, now); u.Since(0)[0][0] != 5 || u.LastUsed != used {
		t.Errorf("after: %+v", u)
	}
	stop()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// What was dropped is no damage.
	if e, err = Open(t.Context(), Config{DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}
