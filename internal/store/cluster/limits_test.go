package cluster

import (
	"crypto/rand"
	"log/slog"
	"slices"
	"testing"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/testkit"
)

// TestStatesFull checks that no checkpoint is stored while STATES is nearly full, because it would drop
// its oldest record, and that it is stored once an operator has raised the limit. Alarm is raised once.
func TestStatesFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	const limit, pieceBytes = 64 << 10, 8 << 10
	var log testkit.Buffer
	e := open(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), StatesBytes: limit})
	p := take(t, e, 0)
	alarmed := make(map[string]bool)
	var want []store.Checkpoint
	for number := uint64(1); !e.nearlyFull.Load(); number++ {
		c := store.Checkpoint{Number: number, First: 1, Seq: number}
		piece := make([]byte, pieceBytes)
		rand.Read(piece)
		testkit.NoError(t, saveAs(t.Context(), p, c, string(piece)))
		c.Pieces = 1
		want = append(want, c)
		testkit.NoError(t, e.watchLimits(t.Context(), alarmed))
	}
	next := store.Checkpoint{Number: uint64(len(want) + 1), First: 1, Seq: 100}
	saved := make(chan error, 1)
	go func() { saved <- saveAs(t.Context(), p, next, "") }()
	testkit.Await(t, "it waits", func() bool { return log.Count("cannot store a checkpoint yet") > 0 })
	if got := readCursor(t, e).Checkpoints; !slices.Equal(got, want) {
		t.Errorf("got checkpoints %+v, want %+v", got, want)
	}
	for _, c := range want {
		if r, err := e.Last(t.Context(), codec.States, c.Subject(0, 0)); err != nil || r.Seq == 0 {
			t.Errorf("checkpoint %d was dropped: %v", c.Number, err)
		}
	}
	_, info := stream(t, e.js, codec.States)
	info.Config.MaxBytes = 2 * limit
	_, err := e.js.UpdateStream(t.Context(), info.Config)
	testkit.NoError(t, err)
	testkit.NoError(t, e.watchLimits(t.Context(), alarmed))
	if err := <-saved; err != nil {
		t.Error(err)
	}
	if got := log.Count("filling up"); got > 2 { // watchBacklog logs it, too
		t.Errorf("%d alarms", got)
	}
}
