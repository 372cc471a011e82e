package cluster

import (
	"fmt"
	"testing"
	"time"

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
