package local

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/test/testkit"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	all := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
	whole := closedWithAll(ctx, t)
	killed := vfs.NewCrashableMem()
	e := mustOpen(ctx, t, Config{FS: killed, DataDir: "/data"})
	storeAll(ctx, t, e, "TOKENS", record("token.a", "x"))
	killed = killed.CrashClone(all)
	testkit.NoError(t, e.Close())
	flipTable := func(letter byte) func(fs *vfs.MemFS) {
		return func(fs *vfs.MemFS) {
			rewrite(t, fs, tablesOf(ctx, t, whole, letter)[0], func(b []byte) []byte { b[len(b)/3] ^= 4; return b })
		}
	}
	removeLogs := func(fs *vfs.MemFS) {
		for _, name := range filesOf(t, fs) {
			if isLog(name) {
				testkit.NoError(t, fs.Remove(name))
			}
		}
	}
	none := func(*vfs.MemFS) {}
	for name, c := range map[string]struct {
		from  *vfs.MemFS
		spoil func(*vfs.MemFS)
		path  string
		want  string // in the error; "" if there is none
		found string // by stream: good records, and whether some are damaged
	}{
		"stopped": {whole, none, "/data", "", "TELEMETRY 300 false AUDIT 600 false ROADS 1 false SOURCES 2 false " +
			"STATES 101 false TOKENS 1 false"},
		"killed": {killed, none, "/data", "", "TELEMETRY 0 false AUDIT 0 false ROADS 0 false SOURCES 1 false " +
			"STATES 0 false TOKENS 1 false"},
		"damaged audit":  {whole, flipTable('A'), "/data", "damaged (in 1 of 6 streams)", "true ROADS 1 false"},
		"damaged states": {whole, flipTable('S'), "/data", "damaged (in 1 of 6 streams)", "AUDIT 600 false"},
		"no log":         {killed, removeLogs, "/data", "held records up to 1 and now ends at 0", "TOKENS 0 false"},
		"another":        {whole, none, "/other", "is not a data directory", ""},
	} {
		t.Run(name, func(t *testing.T) {
			fs := c.from.CrashClone(all)
			c.spoil(fs)
			before := contents(t, fs, "/data/store")
			found, err := Check(ctx, fs, c.path)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
			var got []string
			for _, is := range found {
				got = append(got, fmt.Sprintf("%s %d %t", is.Stream, is.Good, is.Damaged > 0 || is.Unreadable != ""))
			}
			if text := strings.Join(got, " "); !strings.Contains(text, c.found) {
				t.Errorf("found %s, want %s", text, c.found)
			}
			if !maps.Equal(before, contents(t, fs, "/data/store")) {
				t.Error("the files: got them changed, want them unchanged")
			}
		})
	}
	open(t, Config{FS: whole})
	if _, err := Check(ctx, whole, "/data"); err == nil || !strings.Contains(err.Error(), "in use by another carstate") {
		t.Errorf("of a directory in use: got %v, want that it is in use", err)
	}
}
