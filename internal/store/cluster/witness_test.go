package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// crash returns what a crash leaves of an engine's directory once it has witnessed
// all that was stored: of two heartbeats that follow, the second began after that.
func crash(t *testing.T, e *Engine) (dir string) {
	t.Helper()
	for _, stream := range fedStreams { // nothing of their own comes behind what is noted now
		testkit.Await(t, "the first heartbeat of "+stream, func() bool { return e.newest[stream].Load() > 0 })
	}
	for range 2 {
		before := e.newest[codec.States].Load()
		e.beats[codec.States].soon()
		testkit.Await(t, "a heartbeat is stored", func() bool { return e.newest[codec.States].Load() > before })
	}
	dir = filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(dir, os.DirFS(e.config.DataDir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What a stream lost of its end after a crash is missed by the heartbeats of the
// others, whatever is left of its newest block.
func TestWitness(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{Timeouts: Timeouts{Beat: time.Hour}})
	ctx := testkit.Context(t)
	if err := e.Append(ctx, []vehicle.Sample{speedAt("carA", 1), speedAt("carB", 1)}); err != nil {
		t.Fatal(err)
	}
	k := store.NewKeeper(e, store.Config{}, new(access.Tables))
	for range 3 {
		if err := k.Audit(ctx, access.Event{Actor: "admin", Action: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{"tokenuse.x", "tokenuse.y"} {
		if _, err := e.Store(ctx, codec.Tokens, []store.Write{{Subject: subject, Record: codec.Seal(subject, []byte("\x00{}"))}}); err != nil {
			t.Fatal(err)
		}
	}
	crashed := crash(t, e)
	open := func(dir string, c Config) error {
		c.DataDir = dir
		e, err := Open(ctx, c)
		if err == nil {
			err = e.Close()
		}
		return err
	}
	blockOf := func(dir, stream string) string {
		return filepath.Join(embedded.StreamDir(dir, stream), "msgs", "1.blk")
	}
	ways := map[string]func(name string, content []byte) error{
		"removed":            func(name string, _ []byte) error { return os.Remove(name) },
		"emptied":            func(name string, _ []byte) error { return os.WriteFile(name, nil, 0o600) },
		"garbage throughout": func(name string, b []byte) error { return os.WriteFile(name, make([]byte, len(b)), 0o600) },
		"last record gone":   func(name string, b []byte) error { return os.WriteFile(name, b[:len(b)-20], 0o600) },
	}
	for _, name := range []string{codec.Telemetry, codec.Tokens, codec.Audit} {
		for says, do := range ways {
			t.Run(name+" "+says, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				if err := os.CopyFS(dir, os.DirFS(crashed)); err != nil {
					t.Fatal(err)
				}
				content, err := os.ReadFile(blockOf(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := do(blockOf(dir, name), content); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second time it is remembered
					if err := open(dir, Config{}); err == nil || !strings.Contains(err.Error(), "damaged (stream "+name+" held records up to") {
						t.Errorf("%v", err)
					}
				}
			})
		}
	}
	t.Run("whole", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(crashed)); err != nil {
			t.Fatal(err)
		}
		if err := open(dir, Config{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("not synced", func(t *testing.T) { // the operator chose to lose the end
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(crashed)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blockOf(dir, codec.Tokens), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(dir, Config{SyncInterval: time.Minute}); err != nil {
			t.Error(err)
		}
	})
}

// A stream from which everything was removed ends where it ended.
func TestWitnessOfEmptyStream(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{Timeouts: Timeouts{Beat: time.Hour}})
	ctx := testkit.Context(t)
	for i := range 20 {
		if err := e.Append(ctx, []vehicle.Sample{speedAt("carA", int64(i+1))}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := e.js.Stream(ctx, codec.Telemetry)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	crashed := crash(t, e)
	again, err := Open(context.WithoutCancel(ctx), Config{DataDir: crashed})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
