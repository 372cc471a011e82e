package cluster

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"testing"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

// A checkpoint would make the full STATES drop its oldest record.
func TestStatesFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	const limit, pieceBytes = 96 << 10, 4 << 10
	var log testkit.Buffer
	e := open(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), StatesBytes: limit})
	p := take(t, e, 0)
	var stored atomic.Uint64
	background(t, func(ctx context.Context) error {
		for number := uint64(1); ctx.Err() == nil; number++ {
			piece := make([]byte, pieceBytes)
			rand.Read(piece)
			c := store.Checkpoint{Number: number, First: 1, Seq: number}
			if err := saveAs(ctx, p, c, string(piece)); err == nil {
				stored.Store(number)
			} else if ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	testkit.Await(t, "it waits", func() bool { return log.Count("cannot store a checkpoint yet") > 0 })
	before := stored.Load()
	for _, c := range readCursor(t, e).Checkpoints {
		if r, err := e.Last(t.Context(), codec.States, c.Subject(0, 0)); err != nil || r.Seq == 0 {
			t.Errorf("checkpoint %d: got record %d, error %v; want it kept", c.Number, r.Seq, err)
		}
	}
	if c := readCursor(t, e); c.Next != before+1 {
		t.Errorf("the cursor is %+v, want that of checkpoint %d", c, before)
	}
	testkit.Await(t, "an alarm is logged", func() bool { return log.Count("filling up") > 0 })
	_, info := stream(t, e.js, codec.States)
	info.Config.MaxBytes = 64 * limit
	_, err := e.js.UpdateStream(t.Context(), info.Config)
	testkit.NoError(t, err)
	testkit.Await(t, "checkpoints are stored again", func() bool { return stored.Load() > before })
}
