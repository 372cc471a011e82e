package storetest

import (
	"context"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
)

// A restarted node continues the counts of a token. Its own records, which its feed delivers, are
// not counted twice.
func usageSurvivesRestarts(t *testing.T, open Open) {
	dir := t.TempDir()
	now := time.Now()
	id := ""
	for round := range 3 {
		n := Start(t, open(t, store.Config{DataDir: dir}), store.Config{DataDir: dir})
		if round == 0 {
			id = n.Token(t, access.AllVehicles()).Name
		}
		g, ok := n.Tables.Tokens.Get(id)
		if !ok {
			t.Fatalf("the token in round %d: got none, want it restored", round)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			g.Count(access.Answered, now)
			n.KeepUsage(ended) // stores the usage once
		}
		g.Count(access.RateLimited, now)
		n.KeepUsage(ended)
		u := g.Usage(now)
		if calls, refusals := int64(4*(round+1)), int64(round+1); u.Calls != calls || u.Refusals != refusals ||
			u.Reason != access.RateLimited || u.LastUsed.IsZero() {
			t.Errorf("round %d: got %+v, want %d calls, %d refusals and a last use", round, u, calls, refusals)
		}
		n.Stop()
	}
}
