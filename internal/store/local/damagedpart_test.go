package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/durable"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

const (
	partGroups = 300 // of telemetry, all folded
	partEvents = 600 // of AUDIT
	partPieces = 100 // of a checkpoint
)

func closedWithAll(ctx context.Context, t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	e := mustOpen(ctx, t, Config{FS: mem, DataDir: "/data"})
	r := rand.New(rand.NewPCG(3, 4))
	for i := range partGroups {
		group := make([]vehicle.Sample, 20)
		for k := range group {
			group[k] = sample(fmt.Sprintf("v%d", k), int64(1000*(i+1)), 100*r.Float64())
		}
		testkit.NoError(t, e.Append(ctx, group))
	}
	pieces := make([]store.Piece, partPieces)
	for i := range pieces {
		state := make([]byte, 1000)
		for k := range state {
			state[k] = byte(r.Uint32())
		}
		pieces[i].Entries = store.AppendEntry(nil, store.Entry{Vehicle: "v", State: state})
	}
	c := store.Checkpoint{Number: 1, First: 1, Seq: partGroups}
	_, err := take(ctx, t, e, 0).Save(ctx, c, slices.Values(pieces), false)
	testkit.NoError(t, err)
	var events []store.Write
	for i := range partEvents {
		events = append(events, record(fmt.Sprintf("audit.%d", i), fmt.Sprint(r.Uint64(), r.Uint64())))
	}
	storeAll(ctx, t, e, codec.Audit, events...)
	storeAll(ctx, t, e, codec.Tokens, record("token.a", "x"))
	storeAll(ctx, t, e, codec.Sources, record("source.a", "x"))
	storeAll(ctx, t, e, codec.Roads, record("road.a", "x"))
	testkit.NoError(t, e.Close())
	return mem
}

// letter is the first of the keys in the tables.
func tablesOf(ctx context.Context, t *testing.T, fs *vfs.MemFS, letter byte) (names []string) {
	t.Helper()
	e := mustOpen(ctx, t, Config{FS: fs.CrashClone(vfs.CrashCloneCfg{}), DataDir: "/data"})
	defer e.Close()
	levels, err := e.db.SSTables()
	testkit.NoError(t, err)
	for _, level := range levels {
		for _, table := range level {
			first, last := table.Smallest.UserKey[0], table.Largest.UserKey[0]
			if first <= letter && letter <= last {
				names = append(names, fmt.Sprintf("/data/store/%s.sst", table.BackingSSTNum))
			}
		}
	}
	return names
}

// damagedPart flips a bit of a table's records, at a fraction of its length.
func damagedPart(
	ctx context.Context, t *testing.T, whole *vfs.MemFS, letter byte, at float64,
) (*Engine, *testkit.Buffer) {
	t.Helper()
	fs := whole.CrashClone(vfs.CrashCloneCfg{})
	rewrite(t, fs, tablesOf(ctx, t, whole, letter)[0], func(b []byte) []byte {
		b[int(at*float64(len(b)))] ^= 4
		return b
	})
	log := new(testkit.Buffer)
	e, err := Open(ctx, Config{FS: fs, DataDir: "/data", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatalf("damage of %c at %v: got %v, want no error", letter, at, err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, log
}

// Damage of what only an operator reads is logged once, and does not end the engine.
func TestView_DamagedPart(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	whole := closedWithAll(ctx, t)
	everyAudit := func(e *Engine) error {
		_, _, err := e.Before(ctx, codec.Audit, 0, 2*partEvents)
		return err
	}
	for name, c := range map[string]struct {
		letter byte
		at     float64
		ask    func(*Engine) error
	}{
		"Recent": {'L', 0.3, func(e *Engine) error { _, err := e.Recent(ctx, "v1", 1_000_000); return err }},
		"Audit":  {'A', 0.3, everyAudit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, log := damagedPart(ctx, t, whole, c.letter, c.at)
			for range 3 {
				if err := c.ask(e); !errors.Is(err, codec.ErrDamaged) {
					t.Errorf("got %v, want an error of damage", err)
				}
			}
			if err := e.Alive(); err != nil {
				t.Errorf("got an engine that ended with %v, want one that continues", err)
			}
			if n := strings.Count(log.String(), "restore a backup"); n != 1 {
				t.Errorf("got %d lines about damage, want 1: %s", n, log)
			}
			if err := e.Append(ctx, []vehicle.Sample{sample("v", 1_000_000, 1)}); err != nil {
				t.Errorf("Append: got %v, want no error", err)
			}
		})
	}
}

// Damaged telemetry that is folded is trimmed once it is old.
func TestTrim_DamagedPart(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	whole := closedWithAll(ctx, t)
	for _, at := range []float64{0.01, 0.3, 0.6} {
		e, _ := damagedPart(ctx, t, whole, 'L', at)
		e.measureBacklog()
		if err := e.trim(); err != nil {
			t.Errorf("damage at %v: got %v of trim, want no error", at, err)
		}
		if upTo, err := e.firstSince(0, 1, partGroups+1, time.Now()); err != nil || upTo != 1 {
			t.Errorf("damage at %v: got %d, %v as the first group to keep, want 1, because none is old", at, upTo, err)
		}
		if upTo, err := e.firstSince(0, 1, partGroups+1, time.Now().Add(1000*time.Hour)); err != nil || upTo != partGroups+1 {
			t.Errorf("damage at %v: got %d, %v as the first group to keep, want %d", at, upTo, err, partGroups+1)
		}
		p, err := e.Take(ctx, 0, "me", storetest.Empty, store.Anyone)
		testkit.NoError(t, err)
		save(ctx, t, p, 2, partGroups)
		if gone, err := e.TrimTo(ctx, []uint64{partGroups}); err != nil || !gone {
			t.Errorf("damage at %v: got %v, %v, want that all groups are trimmed", at, gone, err)
		}
		if seq, _, err := e.firstGroup(0, 0, forwards); err != nil || seq != 0 {
			t.Errorf("damage at %v: got group %d, %v, want nothing left", at, seq, err)
		}
		if err := e.Alive(); err != nil {
			t.Errorf("damage at %v: got Alive %v, want nil", at, err)
		}
	}
}

// A store opens in spite of damage in AUDIT or telemetry.
func TestOpen_DamagedPart(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	whole := closedWithAll(ctx, t)
	for _, letter := range []byte("AL") {
		for _, name := range tablesOf(ctx, t, whole, letter) {
			content, err := durable.ReadFile(whole, name)
			testkit.NoError(t, err)
			for k := range 12 {
				fs := whole.CrashClone(vfs.CrashCloneCfg{})
				at := (2*k + 1) * len(content) / 24
				rewrite(t, fs, name, func(b []byte) []byte { b = bytes.Clone(b); b[at] ^= 1; return b })
				e, err := Open(ctx, Config{FS: fs, DataDir: "/data"})
				if err != nil {
					t.Errorf("flip at %d of %d of %c: got %v, want no error", at, len(content), letter, err)
					continue
				}
				if err := e.Alive(); err != nil {
					t.Errorf("flip at %d of %d of %c: got Alive %v, want nil", at, len(content), letter, err)
				}
				if err := e.Close(); err != nil {
					t.Errorf("flip at %d of %d of %c: got %v of Close, want no error", at, len(content), letter, err)
				}
			}
		}
	}
}
