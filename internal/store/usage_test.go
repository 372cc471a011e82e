package store

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/testkit"
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
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func issueOn(t *testing.T, k *RecordStore) *access.Grant {
	t.Helper()
	g, _ := k.tables.Tokens.Get(create(t, k, tokenFor(access.AllVehicles())).Name)
	return g
}

// TestUsageIsStoredOnlyWhenItChanged checks that storeUsage stores the usage of each token that was
// called since the last call of storeUsage, in more than one batch, and of no other token.
func TestUsageIsStoredOnlyWhenItChanged(t *testing.T) {
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	var grants []*access.Grant
	for range usageBatch + 10 {
		grants = append(grants, issueOn(t, k))
	}
	stored := func() int {
		n := 0
		for _, g := range grants {
			r, err := e.Last(t.Context(), codec.Tokens, "tokenuse."+g.Name+"."+e.NodeID())
			testkit.NoError(t, err)
			if r.Seq != 0 {
				n++
			}
		}
		return n
	}
	k.storeUsage()
	if n := stored(); n != 0 {
		t.Fatalf("%d records without a call, want none", n)
	}
	for _, g := range grants {
		g.Count(access.ThrottleSystem, access.Unknown, time.Now())
	}
	k.storeUsage()
	if n := stored(); n != len(grants) {
		t.Fatalf("%d records, want %d", n, len(grants))
	}
	before, _ := e.Last(t.Context(), codec.Tokens, "tokenuse."+grants[0].Name+"."+e.NodeID())
	grants[1].Count(access.ThrottleSystem, access.Unknown, time.Now())
	k.storeUsage()
	after, _ := e.Last(t.Context(), codec.Tokens, "tokenuse."+grants[0].Name+"."+e.NodeID())
	if before.Seq != after.Seq {
		t.Error("a token that was not called was stored again")
	}
}

// TestUsageOfNodesThatAreGone checks that pruneUsage drops the usage record of a node that has not
// changed for usageIdle, with its calls, but preserves the last use of the token. A more recent
// record and the record of a newer version must stay.
func TestUsageOfNodesThatAreGone(t *testing.T) {
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	g := issueOn(t, k)
	now := time.Now().UTC().Truncate(time.Second)
	put := func(node string, r usageRecord) {
		subject := "tokenuse." + g.Name + node
		e.put(t, codec.Tokens, write(t, subject, r))
	}
	used := now.Add(-40 * 24 * time.Hour)
	calls := access.Usage{Days: []access.DayCalls{{Day: access.DayOf(now), Calls: access.Calls{{5}}}}, LastUsed: used}
	put(".GONE", packUsage(calls, now.Add(-usageIdle-time.Minute)))
	put(".THERE", packUsage(calls, now.Add(-usageIdle+time.Minute)))
	put(".NEWER", usageRecord{Version: usageVersion + 1, LastUsed: now})
	if u := k.tables.Tokens.Usage(g.Name, now); u.Since(0)[0][0] != 10 || u.LastUsed != used {
		t.Errorf("before pruning: got %+v, want 10 calls and last use %s", u, used)
	}
	k.pruneUsage(t.Context())
	for node, there := range map[string]bool{
		".GONE": false, ".THERE": true, ".NEWER": true, "." + e.NodeID(): true,
	} {
		r, err := e.Last(t.Context(), codec.Tokens, "tokenuse."+g.Name+node)
		if err != nil || (r.Seq != 0) != there {
			t.Errorf("tokenuse.ID%s: stored %t, error %v; want stored %t", node, r.Seq != 0, err, there)
		}
	}
	if u := k.tables.Tokens.Usage(g.Name, now); u.Since(0)[0][0] != 5 || u.LastUsed != used {
		t.Errorf("after pruning: got %+v, want 5 calls and last use %s", u, used)
	}
}

// TestUsageOfNewerVersionStays checks a node that was downgraded. If a newer version has stored
// this node's usage record of a token, the node must not replace the record.
func TestUsageOfNewerVersionStays(t *testing.T) {
	newer, err := json.Marshal(usageRecord{Version: usageVersion + 1})
	testkit.NoError(t, err)
	for name, r := range map[string]Record{"schema": {Newer: true}, "record": {Body: newer}} {
		t.Run(name, func(t *testing.T) {
			e := newMemory(t)
			k := runRecordStore(t, e, Config{})
			g, other := issueOn(t, k), issueOn(t, k)
			r.Subject = "tokenuse." + g.Name + "." + e.NodeID()
			testkit.NoError(t, k.apply(r, sets{}))
			for token, stored := range map[*access.Grant]bool{g: false, other: true} {
				token.Count(access.ThrottleSystem, access.Unknown, time.Now())
				k.storeUsage()
				is, err := e.Last(t.Context(), codec.Tokens, "tokenuse."+token.Name+"."+e.NodeID())
				if err != nil || (is.Seq != 0) != stored {
					t.Errorf("stored: got %t, error %v; want %t", is.Seq != 0, err, stored)
				}
			}
		})
	}
}
