package cluster

import (
	"fmt"
	"log/slog"
	"testing"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// TestStatesFull checks a full STATES. It must drop the vehicle that has been silent for the
// longest time, still accept updates, keep its cursor, and log one alarm.
func TestStatesFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	const limit = 4 << 10
	var log testkit.Buffer
	e := open(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), StatesBytes: limit})
	p := take(t, e, 0)
	const vehicles = 100
	for i := range vehicles {
		commit(t, p, uint64(i+1), sample(fmt.Sprintf("car%d", i), int64(i+1)))
	}
	left := storetest.StoredStates(t, e, 0)
	if n := len(left); n == 0 || n > vehicles/2 {
		t.Fatalf("%d states are left", n)
	}
	for i := vehicles - len(left); i < vehicles; i++ {
		if _, ok := left[vehicle.ID(fmt.Sprintf("car%d", i))]; !ok {
			t.Fatalf("car%d was dropped, although older ones were kept", i)
		}
	}
	if c := readCursor(t, e); c.Next != vehicles+1 {
		t.Fatalf("the cursor is %+v", c)
	}
	alarmed := make(map[string]bool)
	before := log.Count("filling up")
	for range 3 {
		if err := e.watchLimits(t.Context(), alarmed); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.Count("filling up") - before; got != 1 || !alarmed[codec.States] {
		t.Fatalf("%d alarms", got)
	}
}
