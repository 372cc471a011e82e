package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/durable"
	"example.org/carstate/internal/store/local/wal"
	"example.org/carstate/internal/test/testkit"
)

// killedWith returns the file system of a process that was killed after it had acknowledged the
// tokens 0 to n-1, and the name of the log that contains them. If later is set, the tokens are not
// in the first log of the directory.
func killedWith(ctx context.Context, t *testing.T, n int, later bool) (fs *vfs.MemFS, log string) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	config := Config{FS: mem, DataDir: "/data"}
	e := mustOpen(ctx, t, config)
	if later {
		testkit.NoError(t, e.Close())
		e = mustOpen(ctx, t, config)
	}
	for i := range n {
		storeToken(ctx, t, e, i)
	}
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	testkit.NoError(t, e.Close())
	for name := range contents(t, killed, "/data/store") {
		if wal.IsLog(name) {
			log = max(log, name)
		}
	}
	return killed, "/data/store/" + log
}

func tokenName(i int) string { return fmt.Sprintf("token.t%d", i) }

func storeToken(ctx context.Context, t *testing.T, e *Engine, i int) {
	t.Helper()
	storeAll(ctx, t, e, codec.Tokens, record(tokenName(i), "x"))
}

// countTokens returns how many of the tokens 0 to n-1 are stored.
func countTokens(ctx context.Context, t *testing.T, e *Engine, n int) (found int) {
	t.Helper()
	for i := range n {
		r, err := e.Last(ctx, codec.Tokens, tokenName(i))
		testkit.NoError(t, err)
		if r.Seq != 0 {
			found++
		}
	}
	return found
}

// rewrite replaces the content of a file by what change returns.
func rewrite(t *testing.T, fs vfs.FS, name string, change func([]byte) []byte) {
	t.Helper()
	content, err := durable.ReadFile(fs, name)
	testkit.NoError(t, err)
	testkit.NoError(t, durable.WriteFile(fs, name, change(content)))
}

// TestLogFlip_Killed flips a bit at many places of the log of a killed process. Every record in the
// log was acknowledged. Each flip must be found, or lose nothing, also in the first log of a
// directory, in a log that is shorter than a block, and in the last record. Salvage must then name
// the log, and lose one record at most.
func TestLogFlip_Killed(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	const short, long = 12, 900 // tokens
	const block = 32 << 10      // bytes of a block of the log
	for name, c := range map[string]struct {
		tokens int
		later  bool
		noNote bool // as if a power cut had lost the note of synced bytes: the last record has no proof
	}{
		"FirstShort": {tokens: short}, "FirstLong": {tokens: long},
		"LaterShort": {tokens: short, later: true}, "LaterLong": {tokens: long, later: true},
		"ShortWithoutNote": {tokens: short, noNote: true}, "LongWithoutNote": {tokens: long, noNote: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killed, log := killedWith(ctx, t, c.tokens, c.later)
			content, err := durable.ReadFile(killed, log)
			testkit.NoError(t, err)
			if isLong := len(content) > block; isLong != (c.tokens == long) {
				t.Fatalf("the log has %d bytes", len(content))
			}
			least := c.tokens
			if c.noNote {
				testkit.NoError(t, killed.Remove("/data/store/synced"))
				least--
			}
			places := 120
			if testkit.RaceDetector {
				places = 12
			}
			refused := 0
			for k := range places {
				at := (2*k + 1) * len(content) / (2 * places)
				fs := killed.CrashClone(vfs.CrashCloneCfg{})
				rewrite(t, fs, log, func(b []byte) []byte { b[at] ^= 1 << (k % 8); return b })
				config := Config{FS: fs, DataDir: "/data"}
				if k%10 == 0 || k == places-1 {
					checkSalvaged(ctx, t, fs, at, c.tokens, c.noNote)
				}
				e, err := Open(ctx, config)
				if err != nil {
					refused++
					want := "is damaged (the write-ahead log " + fs.PathBase(log)
					if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
						t.Errorf("flip at %d of %d: got %v, want %q in one line", at, len(content), err, want)
					}
					continue
				}
				if got := countTokens(ctx, t, e, c.tokens); got < least {
					t.Errorf("flip at %d of %d: got %d tokens, want at least %d", at, len(content), got, least)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			if want := places * 8 / 10; refused < want {
				t.Errorf("got %d of %d flips refused, want at least %d", refused, places, want)
			}
		})
	}
}

// checkSalvaged salvages a directory whose log has a flipped bit at byte at, and checks that at
// most one of n tokens is lost. If one is lost, the result must also count one damaged log, unless
// noNote says that the directory has no note of synced bytes.
func checkSalvaged(ctx context.Context, t *testing.T, fs *vfs.MemFS, at, n int, noNote bool) {
	t.Helper()
	found, err := Salvage(ctx, fs, "/data", "/good")
	if err != nil {
		t.Errorf("flip at %d: %v", at, err)
		return
	}
	kept, logs := 0, 0
	for _, f := range found {
		switch f.What {
		case codec.Tokens:
			kept = f.Kept
		case Log:
			logs = f.Unreadable
		}
	}
	if kept < n-1 || kept < n && logs != 1 && !noNote {
		t.Errorf("flip at %d: got %d tokens of %d salvaged, %d damaged logs", at, kept, n, logs)
	}
}

// TestLogCut_Killed truncates the log of a killed process, or removes the log. A start
// must report either as damage. It finds the damage by the note of synced bytes, a file
// that says how much of the log was synced.
func TestLogCut_Killed(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	const tokens = 12
	killed, log := killedWith(ctx, t, tokens, true)
	for name, cut := range map[string]func(fs vfs.FS){
		"half":    func(fs vfs.FS) { rewrite(t, fs, log, func(b []byte) []byte { return b[:len(b)/2] }) },
		"empty":   func(fs vfs.FS) { rewrite(t, fs, log, func([]byte) []byte { return nil }) },
		"removed": func(fs vfs.FS) { testkit.NoError(t, fs.Remove(log)) },
	} {
		fs := killed.CrashClone(vfs.CrashCloneCfg{})
		cut(fs)
		e, err := Open(ctx, Config{FS: fs, DataDir: "/data"})
		if err == nil {
			t.Errorf("%s: got a start with %d tokens of %d, want an error", name, countTokens(ctx, t, e, tokens), tokens)
			_ = e.Close()
		} else if !strings.Contains(err.Error(), "is damaged (the write-ahead log") {
			t.Errorf("%s: got %v, want that the log is damaged", name, err)
		}
	}
}
