package store

import (
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

// TestUsage_AfterARestart checks that the usage of all processes is added up and read again.
func TestUsage_AfterARestart(t *testing.T) {
	e := newMemory(t)
	token := create(t, runRecordStore(t, e, Config{}), tokenFor(access.AllVehicles()))
	now := time.Now().UTC().Truncate(time.Minute)
	for n := range int64(3) {
		k := runRecordStore(t, e, Config{})
		g, _ := k.tables.Tokens.Get(token.Name)
		want := access.Usage{Calls: n}
		if n > 0 {
			want.LastUsed = now
		}
		if got := g.Usage(now); got != want {
			t.Errorf("after %d starts: got %+v, want %+v", n, got, want)
		}
		g.Count(access.Unknown, now)
		for range 2 { // the second call stores nothing
			k.storeUsage(t.Context())
		}
	}
}

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
