package store

import (
	"encoding/json"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

// TestUsageOfEarlierVersions checks that the usage that an earlier version stored, by node and day,
// is part of the total, and that the next write of the total replaces it.
func TestUsageOfEarlierVersions(t *testing.T) {
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	token := create(t, k, tokenFor(access.AllVehicles()))
	g, _ := k.tables.Tokens.Get(token.Name)
	subject := "tokenuse." + g.Name + "."
	now := time.Now().UTC().Truncate(time.Minute)
	for node, text := range map[string]string{
		"ONE": `{"v":1,"stored":"2026-11-20T12:00:00Z","last_used":"2026-11-20T12:00:00Z",
			"last_refused":"2026-11-20T11:59:30Z","reason":5,
			"days":[{"d":20410,"c":[[3],[1,1]]},{"d":20411,"c":[[0,0,0,0,1,2],[]]}]}`,
		"TWO": `{"v":1,"last_used":"2026-11-19T12:00:00Z","days":[{"d":20410,"c":[[4],null]}]}`,
	} {
		e.put(t, codec.Tokens, write(t, subject+node, json.RawMessage(text)))
	}
	refused := time.Date(2026, 11, 20, 11, 59, 30, 0, time.UTC)
	want := access.Usage{Calls: 12, Refusals: 3, LastUsed: refused.Add(30 * time.Second), LastRefused: refused,
		Reason: access.RateLimited}
	if got := g.Usage(now); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Calls, want.LastUsed = 13, now
	g.Count(access.Unknown, now)
	for range 2 { // the second call stores nothing, and removes what the first has emptied
		k.storeUsage(t.Context())
	}
	for part, there := range map[string]bool{"ONE": false, "TWO": false, "total": true} {
		if r, err := e.Last(t.Context(), codec.Tokens, subject+part); err != nil || (r.Seq != 0) != there {
			t.Errorf("tokenuse.ID.%s: stored %t, error %v; want stored %t", part, r.Seq != 0, err, there)
		}
	}
	var restarted access.Tables
	testkit.NoError(t, e.Scan(t.Context(), codec.Tokens, []string{"tokenuse.*.*"},
		NewRecordStore(e, Config{}, &restarted).tokenFeed.(*memoryFeed).apply))
	restarted.Tokens.Put(token)
	again, _ := restarted.Tokens.Get(token.Name)
	if here, there := g.Usage(now), again.Usage(now); here != want || there != want {
		t.Errorf("got %+v, after a restart %+v, want %+v", here, there, want)
	}
}

// TestUsageOfNewerVersionStays checks that the usage record of a newer version is not replaced, in
// contrast to one that no service can have written.
func TestUsageOfNewerVersionStays(t *testing.T) {
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	var seqs []uint64
	for _, r := range []usageRecord{
		{Version: usageVersion + 1, Calls: 5}, {Version: usageVersion, Calls: 5}, {Version: usageVersion, Calls: -5},
	} {
		g, _ := k.tables.Tokens.Get(create(t, k, tokenFor(access.AllVehicles())).Name)
		subject := "tokenuse." + g.Name + ".total"
		e.put(t, codec.Tokens, write(t, subject, r))
		before, err := e.Last(t.Context(), codec.Tokens, subject)
		testkit.NoError(t, err)
		g.Count(access.Unknown, time.Now())
		k.storeUsage(t.Context())
		after, err := e.Last(t.Context(), codec.Tokens, subject)
		testkit.NoError(t, err)
		seqs = append(seqs, after.Seq-before.Seq)
	}
	if seqs[0] != 0 || seqs[1] == 0 || seqs[2] == 0 {
		t.Errorf("the sequences of the records grew by %d, want 0 for the newer one only", seqs)
	}
}
