package local

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// auditEvents returns n records of AUDIT with random contents.
func auditEvents(n int, r *rand.Rand) (events []store.Write) {
	for i := range n {
		event := fmt.Sprintf("event %d %x", r.Uint64(), r.Uint64())
		events = append(events, record(fmt.Sprintf("audit.%d", i), event))
	}
	return events
}

// TestSalvage damages one byte of a table or of the log. Salvage must leave the damaged directory
// unchanged, and create a directory that an engine can open and write. After damage of a table, at
// least half of the states, events and groups of telemetry together must be kept. After damage of
// the log, all events and groups must be kept, but no state, because all states are in the damaged
// record of the log.
func TestSalvage(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	fs := vfs.NewCrashableMem()
	config := Config{FS: fs, DataDir: "/data"}
	e := mustOpen(ctx, t, config)
	r := rand.New(rand.NewPCG(1, 2))
	const vehicles, groups, events = 2000, 300, 999
	p := take(ctx, t, e, 0)
	states := make(map[vehicle.ID]*vehicle.State)
	for i := range vehicles {
		s := vehicle.Observe(vehicle.State{}, sample(fmt.Sprintf("v%d", i), 1000, float64(i%100)))
		states[vehicle.ID(fmt.Sprintf("v%d", i))] = &s
	}
	for i := range groups {
		group := make([]vehicle.Sample, 20)
		for k := range group {
			group[k] = sample(fmt.Sprintf("v%d", r.IntN(vehicles)), int64(2000+i), 50)
		}
		testkit.NoError(t, e.Append(ctx, group))
	}
	testkit.NoError(t, p.Commit(ctx, 1, storetest.Packed(states), false))
	storeAll(ctx, t, e, codec.Audit, auditEvents(events, r)...)
	storeAll(ctx, t, e, codec.Tokens, record("token.a", "x"))
	running := fs.CrashClone(vfs.CrashCloneCfg{})
	testkit.NoError(t, e.Close())

	whole := map[string]int{
		codec.Telemetry: groups, "cursors": 1, codec.Audit: events, codec.Roads: 0,
		codec.Sources: 1, codec.States: vehicles, codec.Tokens: 1,
	}
	seen := make(map[string]bool) // streams with an unreadable part
	for at, place := range []struct {
		letter byte
		at     float64
	}{{0, 0.5}, {'S', 0.15}, {'S', 0.5}, {'A', 0.35}, {'L', 0.25}, {'L', 0.6}} {
		damaged := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: r})
		if at == 0 {
			damaged = running // the killed process, whose log is damaged
			flip(t, damaged, ".log", place.at)
		} else {
			rewrite(t, damaged, tablesOf(ctx, t, fs, place.letter)[0], func(b []byte) []byte {
				b[int(place.at*float64(len(b)))] ^= 4
				return b
			})
		}
		before := contents(t, damaged, "/data/store")
		found, err := Salvage(ctx, damaged, "/data", "/good")
		testkit.NoError(t, err)
		after := contents(t, damaged, "/data/store")
		delete(before, "LOCK")
		if delete(after, "LOCK"); !maps.Equal(before, after) {
			t.Fatalf("the damaged directory was changed: it held %q and holds %q",
				slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		}
		kept := make(map[string]int)
		for _, f := range found {
			kept[f.What] = f.Kept
			if f.Kept > whole[f.What] || f.Damaged > 0 ||
				f.Kept < whole[f.What] && f.Unreadable == 0 && at > 0 {
				t.Errorf("found %+v of %d", f, whole[f.What])
			}
			seen[f.What] = seen[f.What] || f.Unreadable > 0
		}
		if total := kept[codec.States] + kept[codec.Audit] + kept[codec.Telemetry]; at > 0 &&
			total < (vehicles+groups+events)/2 {
			t.Errorf("one byte costs all but %d records: %+v", total, found)
		}
		salvaged := config
		salvaged.FS, salvaged.DataDir = damaged, "/good"
		counted := new(answers)
		salvaged.Answers = counted
		e = mustOpen(ctx, t, salvaged)
		if len(counted.states) != kept[codec.States] {
			t.Errorf("%d states are salvaged, and the answers of %d", kept[codec.States], len(counted.states))
		}
		if at == 0 && (kept[codec.Telemetry] != groups || kept[codec.States] != 0 || kept[codec.Audit] != events ||
			!seen[Log]) {
			t.Errorf("only the states are in the damaged record of the log: %+v", found)
		}
		if record, err := e.Last(ctx, codec.Tokens, "token.a"); err != nil ||
			(record.Seq != 0) != (kept[codec.Tokens] == 1) {
			t.Errorf("the token is %+v, %v; kept %d", record, err, kept[codec.Tokens])
		}
		if err := e.Append(ctx, []vehicle.Sample{sample("v1", 3000, 1)}); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{codec.Telemetry, codec.States, codec.Audit, Log} {
		if !seen[name] {
			t.Errorf("no damage made a part of %s unreadable", name)
		}
	}
}

// TestSalvageRefuses checks that Salvage refuses a target that exists, a source that is not a data
// directory, and a source that is in use. It must also refuse, and leave unchanged, a directory
// that exists where it would make the copy.
func TestSalvageRefuses(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	e := mustOpen(t.Context(), t, Config{FS: fs, DataDir: "/data"})
	testkit.NoError(t, fs.MkdirAll("/other.new/kept", 0o700))
	for _, c := range []struct{ from, to, want string }{
		{"/data", "/data", "exists already"}, {"/none", "/new", "is not a data directory"}, {"/data", "/new", "in use"},
	} {
		if _, err := Salvage(t.Context(), fs, c.from, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Salvage(%s, %s): %v; want %q", c.from, c.to, err, c.want)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Salvage(t.Context(), fs, "/data", "/other"); err == nil ||
		!strings.Contains(err.Error(), "/other.new exists already") {
		t.Errorf("Salvage beside another directory: %v", err)
	}
	if _, err := fs.Stat("/other.new/kept"); err != nil {
		t.Errorf("the other directory: %v", err)
	}
}
