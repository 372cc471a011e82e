package store

import (
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

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
