package storetest

import (
	"context"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
)

// usageSurvivesRestarts checks that a restarted node keeps its name and continues its counts. The
// node's own records, which its feed delivers to it, must not be counted twice.
func usageSurvivesRestarts(t *testing.T, open Open) {
	dir := t.TempDir()
	now := time.Now()
	id, name := "", ""
	for round := range 3 {
		n := Start(t, open(t, store.Config{DataDir: dir}), store.Config{DataDir: dir})
		if round == 0 {
			id, name = n.Token(t, access.AllVehicles()).Name, n.NodeID()
		}
		if n.NodeID() != name {
			t.Errorf("after a restart: got name %s, want %s", n.NodeID(), name)
		}
		g, ok := n.Tables.Tokens.Get(id)
		if !ok {
			t.Fatal("the token was not restored")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			g.Count(access.CarDrivingState, access.Answered, now)
			n.KeepUsage(ended) // stores the usage once
		}
		g.Count(access.ThrottleSystem, access.RateLimited, now)
		n.KeepUsage(ended)
		u := n.Tables.Tokens.Usage(id, now)
		if got := u.Since(0); got[0][access.Answered] != int64(3*(round+1)) || got[1][access.RateLimited] != int64(round+1) {
			t.Errorf("round %d: got calls %v, want %d answered and %d rate limited", round, got, 3*(round+1), round+1)
		}
		if u.Reason != access.RateLimited || u.LastUsed.IsZero() {
			t.Errorf("round %d: got %+v, want a last use and a last refusal", round, u)
		}
		n.Stop()
	}
}
