package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/storetest"
	"example.org/carstate/internal/testkit"
)

// TestTokensFull checks that a full TOKENS still accepts heartbeats, because each heartbeat
// replaces the previous one. So telemetry is stored, no node restarts, and the copies of the nodes
// remain current.
func TestTokensFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{Patience: slowStore, Timeouts: watchful})
	ctx := testkit.Context(t)
	storetest.RunKeeper(t, e, store.Config{})
	follow(t, e)
	// heardSince reports whether every copy has received a heartbeat that was written after the
	// time t.
	heardSince := func(t time.Time) bool {
		age, err := e.FeedAge()
		return err == nil && age < time.Since(t)
	}
	began := time.Now()
	testkit.Await(t, "the copies are current", func() bool { return heardSince(began) })

	_, info := stream(t, e.js, codec.Tokens)
	info.Config.MaxBytes = int64(info.State.Bytes) + 10<<10
	_, err := e.js.UpdateStream(ctx, info.Config)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; !full(err); n++ {
		subject := fmt.Sprintf("tokenuse.filler.%d", n)
		if _, err = e.js.Publish(ctx, subject, codec.Seal(subject, []byte("\x00{}"))); err != nil && !full(err) {
			t.Fatal(err)
		}
	}
	for range 3 {
		began := time.Now()
		testkit.Await(t, "heartbeats of the full stream come back", func() bool { return heardSince(began) })
		testkit.Await(t, "the engine stores", func() bool { return e.Writable() == nil })
	}
	if err := e.Alive(); err != nil {
		t.Fatal(err)
	}
}

// TestAuditFull fills AUDIT. Its last room is kept for taking rights away and for the admin key; when that
// is used up, too, nothing is done without its event, until an administrator raises the limit.
func TestAuditFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{})
	ctx := testkit.Context(t)
	records := store.NewRecordStore(e, store.Config{}, new(access.Tables))
	limit := func(bytes int64) {
		t.Helper()
		_, info := stream(t, e.js, codec.Audit)
		info.Config.MaxBytes = bytes
		_, err := e.js.UpdateStream(ctx, info.Config)
		testkit.NoError(t, err)
	}
	check := func(when string, change, revoke, admin bool) {
		t.Helper()
		testkit.NoError(t, e.watchLimits(ctx, make(map[string]bool)))
		for what, c := range map[string]struct {
			event access.Event
			want  bool
		}{
			"a change":           {access.Event{Action: "token.issue", Actor: "ada"}, change},
			"a revocation":       {access.Event{Action: "token.revoke", Actor: "ada"}, revoke},
			"the admin's change": {access.Event{Action: "token.issue", Actor: "ada", Admin: true}, admin},
		} {
			if err := records.Audit(ctx, c.event); (err == nil) != c.want {
				t.Errorf("AUDIT %s, %s: error %v, want accepted: %t", when, what, err, c.want)
			}
		}
	}
	const size = 64 << 10
	limit(size)
	check("with room", true, true, true)
	filler := access.Event{Action: "token.issue", Actor: "ada", Admin: true, Detail: strings.Repeat("x", 500)}
	fill := func(until func() bool) {
		for !until() && records.Audit(ctx, filler) == nil {
		}
	}
	fill(func() bool {
		_, info := stream(t, e.js, codec.Audit)
		return info.State.Bytes*100 >= size*reservedFrom
	})
	check("nearly full", false, true, true)
	fill(func() bool { return false })
	filler.Detail = ""
	fill(func() bool { return false })
	check("full", false, false, false)
	testkit.NoError(t, e.Alive())
	limit(2 * size)
	check("with a higher limit", true, true, true)
}
