package local

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

// TestSalvage_SmallStore damages the only block of a stream's table, in a store that was then
// opened again and killed. Salvage must copy the records in the log and the records of all other
// streams, and must count the damage for its stream only.
func TestSalvage_SmallStore(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	mem := vfs.NewCrashableMem()
	config := Config{FS: mem, DataDir: "/data"}
	const old, late = 5, 3 // tokens, and samples
	e := mustOpen(ctx, t, config)
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			storeToken(ctx, t, e, i)
			put(ctx, t, e, sample("v", int64(1000*(i+1)), 1))
			event := fmt.Sprintf(`{"time":"2026-11-%02dT00:00:00Z"}`, i+1)
			storeAll(ctx, t, e, codec.Audit, record("audit.x", event))
		}
	}
	write(0, old)
	testkit.NoError(t, e.Close())
	closed := mem.CrashClone(vfs.CrashCloneCfg{})
	e = mustOpen(ctx, t, config)
	write(old, old+late)
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	testkit.NoError(t, e.Close())
	for name, letter := range map[string]byte{codec.Tokens: 'T', codec.Audit: 'A', codec.Telemetry: 'L'} {
		for _, damage := range []string{"flipped", "cut", "removed"} {
			t.Run(name+" "+damage, func(t *testing.T) {
				t.Parallel()
				fs := killed.CrashClone(vfs.CrashCloneCfg{})
				table := tablesOf(ctx, t, closed, letter)[0]
				switch damage {
				case "flipped":
					rewrite(t, fs, table, func(b []byte) []byte { b[20] ^= 1; return b })
				case "cut":
					rewrite(t, fs, table, func(b []byte) []byte { return b[:len(b)/2] })
				default:
					testkit.NoError(t, fs.Remove(table))
				}
				found, err := Salvage(ctx, fs, "/data", "/good")
				testkit.NoError(t, err)
				for _, f := range found {
					kept, unreadable := 0, 0
					switch f.What {
					case codec.Tokens, codec.Audit, codec.Telemetry:
						kept = old + late
					case codec.Sources:
						kept = f.Kept // the directory's own records
					}
					if f.What == name {
						kept, unreadable = late, 1
						if damage == "removed" { // Pebble then does not say which tables there are
							kept = min(f.Kept, late)
						}
					}
					if f.What == name && name == codec.Audit &&
						(!f.LostFrom.IsZero() || f.LostUntil.Day() != old+1) {
						t.Errorf("got AUDIT lost from %v until %v, want until the first event of the log",
							f.LostFrom, f.LostUntil)
					}
					if f.Kept != kept || f.Unreadable != unreadable || f.Damaged != 0 {
						t.Errorf("%s: got %+v, want %d kept, %d unreadable", f.What, f, kept, unreadable)
					}
				}
				if e, err := Open(ctx, Config{FS: fs, DataDir: "/good"}); err != nil {
					t.Error(err)
				} else if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
