package cluster

import (
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

// Each heartbeat replaces the one before.
func TestTokensFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{Patience: slowStore, Timeouts: watchful})
	ctx := testkit.Context(t)
	storetest.RunKeeper(t, e, store.Config{})
	follow(t, e)
	heardSince := func(t time.Time) bool {
		age, err := e.FeedAge()
		return err == nil && age < time.Since(t)
	}
	began := time.Now()
	testkit.Await(t, "the copies are current", func() bool { return heardSince(began) })

	_, info := stream(t, e.js, codec.Tokens)
	info.Config.MaxBytes = int64(info.State.Bytes) + 10<<10
	_, err := e.js.UpdateStream(ctx, info.Config)
	testkit.NoError(t, err)
	for n := 0; !full(err); n++ {
		subject := fmt.Sprintf("tokenuse.filler.%d", n)
		if _, err = e.js.Publish(ctx, subject, codec.Seal(subject, []byte("\x00{}"))); err != nil && !full(err) {
			t.Fatalf("Publish of %s: got %v, want no error until it is full", subject, err)
		}
	}
	for range 3 {
		began := time.Now()
		testkit.Await(t, "heartbeats of the full stream come back", func() bool { return heardSince(began) })
		testkit.Await(t, "the engine stores", func() bool { return e.Writable() == nil })
	}
	testkit.NoError(t, e.Alive())
}

// Without the last room of AUDIT, which is kept for taking rights away and for the admin key,
// nothing is done.
func TestAuditFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{})
	ctx := testkit.Context(t)
	records := store.NewRecordStore(e, store.Config{}, new(access.Tables))
	limit := func(bytes int64) {
		_, info := stream(t, e.js, codec.Audit)
		info.Config.MaxBytes = bytes
		_, err := e.js.UpdateStream(ctx, info.Config)
		testkit.NoError(t, err)
	}
	const size = 32 << 10
	fill := func(percent uint64) {
		for err := error(nil); err == nil; err = records.Audit(ctx, access.Event{Action: "x", Admin: true}) {
			if _, info := stream(t, e.js, codec.Audit); info.State.Bytes*100 >= size*percent {
				return
			}
		}
	}
	check := func(when string, want ...bool) {
		t.Helper()
		testkit.NoError(t, e.watchLimits(ctx, make(map[string]bool)))
		for i, ev := range []access.Event{{Action: "token.issue"}, {Action: "token.revoke"}, {Action: "token.issue", Admin: true}} {
			if err := records.Audit(ctx, ev); (err == nil) != want[i] {
				t.Errorf("AUDIT %s, %+v: error %v, want accepted: %t", when, ev, err, want[i])
			}
		}
	}
	limit(size)
	check("with room", true, true, true)
	fill(reservedFrom)
	check("nearly full", false, true, true)
	fill(100)
	check("full", false, false, false)
	testkit.NoError(t, e.Alive())
	limit(2 * size)
	check("with a higher limit", true, true, true)
}
