package cluster_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/codec"
	"carstate/internal/store/storetest"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// A directory that cannot be used is refused with one line and stays as it is,
// every time.
func TestDataDirRefused(t *testing.T) {
	t.Parallel()
	meta := func(dir, name string) string {
		return filepath.Join(dir, "engine", "jetstream", "$G", "streams", name, "meta.inf")
	}
	cases := map[string]struct {
		spoil func(t *testing.T, dir string) string // returns the directory to open
		want  string
	}{
		"a foreign directory": {func(t *testing.T, dir string) string {
			foreign := t.TempDir()
			put(t, filepath.Join(foreign, "thesis.tex"), "do not lose this")
			return foreign
		}, "not carstate's"},
		"a foreign directory with a lock": {func(t *testing.T, dir string) string {
			foreign := t.TempDir()
			put(t, filepath.Join(foreign, "lock"), "")
			put(t, filepath.Join(foreign, "thesis.tex"), "do not lose this")
			return foreign
		}, "not carstate's"},
		"a corrupt identity": {func(t *testing.T, dir string) string {
			put(t, filepath.Join(dir, "carstate.json"), `{"format":1,"par`)
			return dir
		}, "damaged"},
		"an identity without a format": {func(t *testing.T, dir string) string {
			put(t, filepath.Join(dir, "carstate.json"), `{}`)
			return dir
		}, "damaged"},
		"a newer format": {func(t *testing.T, dir string) string {
			put(t, filepath.Join(dir, "carstate.json"), `{"format":3,"partitions":4,"ready":true}`)
			return dir
		}, "newer carstate"},
		"an older format": {func(t *testing.T, dir string) string {
			put(t, filepath.Join(dir, "carstate.json"), `{"format":1,"partitions":4,"ready":true}`)
			return dir
		}, "older carstate"},
		"marked as damaged": {func(t *testing.T, dir string) string {
			put(t, filepath.Join(dir, "carstate.json"), `{"format":2,"partitions":4,"ready":true,"damaged":"stream STATES is missing"}`)
			return dir
		}, "stream STATES is missing"},
		"a stream's description is missing": {func(t *testing.T, dir string) string {
			if err := os.Remove(meta(dir, codec.Sources)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "stream SOURCES"},
		"a stream's description is no JSON": {func(t *testing.T, dir string) string {
			put(t, meta(dir, codec.Tokens), "\x00\x00\x00")
			return dir
		}, "stream TOKENS"},
		"a stream's records are missing": {func(t *testing.T, dir string) string {
			if err := os.RemoveAll(filepath.Join(filepath.Dir(meta(dir, codec.Audit)), "msgs")); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "stream AUDIT"},
		"in use": {func(t *testing.T, dir string) string {
			f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "in use by another carstate"},
		"below a file": {func(t *testing.T, dir string) string {
			return filepath.Join(dir, "carstate.json", "data")
		}, "not a directory"},
		"a file": {func(t *testing.T, dir string) string {
			return filepath.Join(dir, "carstate.json")
		}, "not a directory"},
		"a file system that refuses": {func(t *testing.T, dir string) string {
			return "/proc/carstate-data"
		}, "cannot be made"},
		"a directory that refuses": {func(t *testing.T, dir string) string {
			return "/proc/self/fdinfo"
		}, "not carstate's"},
	}
	whole := filledDir(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := c.spoil(t, copyDir(t, whole))
			before := tree(t, dir)
			for range 2 {
				refused(t, cluster.Config{DataDir: dir}, c.want)
				if after := tree(t, dir); after != before {
					t.Fatalf("the directory was changed\nbefore:\n%s\nafter:\n%s", before, after)
				}
			}
		})
	}
}

// An engine that gives up while it starts says why, at once and in one line.
func TestEngineGivesUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "carstate.json"), `{"format":2,"partitions":0,"ready":false}`)
	if err := os.Mkdir(filepath.Join(dir, "engine"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "engine", "jetstream"), "in the way")
	begin := time.Now()
	refused(t, cluster.Config{DataDir: dir}, "did not start: Can't start JetStream: storage directory is not a directory")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("that took %s", took)
	}
}

// Files that this user may not read or write are not damaged. The text says what
// is in the way, nothing is changed, and with the permissions back all is well.
func TestDataDirPermissions(t *testing.T) {
	t.Parallel()
	streams := "engine/jetstream/$G/streams/"
	cases := map[string]struct {
		file string
		mode os.FileMode
		want string
	}{
		"engine not writable":        {"engine", 0o500, "cannot be written (engine: permission denied)"},
		"engine not readable":        {"engine", 0o000, "cannot be read (the description of stream TELEMETRY: permission denied)"},
		"store not writable":         {"engine/jetstream", 0o500, "cannot be written (engine/jetstream: permission denied)"},
		"description not readable":   {streams + "STATES/meta.inf", 0o200, "cannot be read (the description of stream STATES: permission denied)"},
		"description not writable":   {streams + "STATES/meta.inf", 0o400, "cannot be written (" + streams + "STATES/meta.inf: permission denied)"},
		"records not readable":       {streams + "TOKENS/msgs", 0o300, "cannot be read (" + streams + "TOKENS/msgs: permission denied)"},
		"records not writable":       {streams + "TOKENS/msgs", 0o500, "cannot be written (" + streams + "TOKENS/msgs: permission denied)"},
		"one block not readable":     {streams + "AUDIT/msgs/1.blk", 0o200, "cannot be read (block 1 of stream AUDIT: permission denied)"},
		"the directory not writable": {".", 0o500, "cannot be written: permission denied"},
		"the directory not readable": {".", 0o300, "cannot be read: permission denied"},
		"the identity not readable":  {"carstate.json", 0o200, "cannot be read (carstate.json: permission denied)"},
		"the lock is another's":      {"lock", 0o000, "cannot be written: permission denied"},
	}
	whole := filledDir(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, whole)
			giveToNobody(t, dir)
			before := tree(t, dir)
			file := filepath.Join(dir, c.file)
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil {
				t.Fatal(err)
			}
			out, err := childProcess(t, "nobody", dir).CombinedOutput()
			if err == nil {
				t.Fatal("it was opened")
			}
			if text := strings.TrimSpace(string(out)); strings.Contains(text, "\n") || strings.Contains(text, "damaged") || !strings.Contains(text, c.want+": check its owner and permissions") {
				t.Fatalf("the error is %q; want one line with %q and what to do", text, c.want)
			}
			if err := os.Chmod(file, info.Mode()); err != nil {
				t.Fatal(err)
			}
			if tree(t, dir) != before {
				t.Fatal("the directory was changed")
			}
			if out, err := childProcess(t, "nobody", dir).CombinedOutput(); err != nil {
				t.Fatalf("with the permissions back: %v: %s", err, out)
			}
		})
	}
}

// nobody is a user for whom, other than for root, permissions count.
const nobody = 65534

// giveToNobody makes a directory of a test the nobody's, if the test has the
// rights of root. Otherwise permissions count as it is.
func giveToNobody(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	for up := filepath.Dir(dir); up != filepath.Clean(os.TempDir()) && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, nobody, nobody))
	}); err != nil {
		t.Fatal(err)
	}
}

// openAsNobody opens an engine without the rights of root, and closes it.
func openAsNobody(dir string) error {
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	e, err := cluster.Open(context.Background(), cluster.Config{DataDir: dir})
	if err != nil {
		return err
	}
	return e.Close()
}

// What a killed first start leaves, or mkfs, is no reason to refuse.
func TestDataDirBegins(t *testing.T) {
	t.Parallel()
	for _, leftover := range []string{"lock", "carstate.json.new", "lost+found/"} {
		t.Run(leftover, func(t *testing.T) {
			dir := t.TempDir()
			if name, ok := strings.CutSuffix(leftover, "/"); ok {
				if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
			} else {
				put(t, filepath.Join(dir, leftover), `{"for`)
			}
			e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The server leaves out a stream whose description does not match its checksum.
// The finding is written down, because the server would go on without it.
func TestDataDirForgottenStream(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := copyDir(t, filledDir(t))
	meta := filepath.Join(dir, "engine", "jetstream", "$G", "streams", codec.Tokens, "meta.inf")
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	put(t, meta, strings.Replace(string(text), `"max_bytes":1073741824`, `"max_bytes":1073741823`, 1))
	refused(t, cluster.Config{DataDir: dir}, "stream TOKENS is missing")
	before := tree(t, dir)
	refused(t, cluster.Config{DataDir: dir}, "stream TOKENS is missing")
	if tree(t, dir) != before {
		t.Fatal("the second refusal changed the directory")
	}
}

// samples of data directories, made once for all tests, which copy them.
var samples struct {
	dir  string // removed by TestMain
	once sync.Once
}

// filledDir returns a closed data directory with something in every stream.
// Nobody may change it.
func filledDir(t *testing.T) string { return sampleDir(t, "closed") }

// crashedDir returns what a process that was killed leaves: a copy of the files
// of an engine that ran. Nobody may change it.
func crashedDir(t *testing.T) string { return sampleDir(t, "crashed") }

func sampleDir(t *testing.T, name string) string {
	t.Helper()
	samples.once.Do(func() {
		closed := filepath.Join(samples.dir, "closed")
		e, err := cluster.Open(t.Context(), restful(closed))
		if err != nil {
			t.Fatal(err)
		}
		fill(t, e)
		if err := os.CopyFS(filepath.Join(samples.dir, "crashed"), os.DirFS(closed)); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
	return filepath.Join(samples.dir, name)
}

// restful is an engine whose files do not change while they are copied: nothing is
// stored by itself.
func restful(dir string) cluster.Config {
	return cluster.Config{DataDir: dir, Timeouts: cluster.Timeouts{Beat: time.Hour}}
}

const (
	filledTokens  = 20
	filledStates  = 200
	filledSamples = 200
)

func fill(t *testing.T, e *cluster.Engine) {
	t.Helper()
	ctx := testkit.Context(t)
	for i := range filledSamples {
		if err := e.Append(ctx, []vehicle.Sample{sample("carA", int64(i+1), 30)}); err != nil {
			t.Fatal(err)
		}
	}
	part, err := e.Take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	for i := range filledStates {
		id := vehicle.ID(fmt.Sprintf("car%d", i))
		s := vehicle.Observe(vehicle.State{}, sample(string(id), int64(i+1), 10))
		if err := part.Commit(ctx, 0, map[vehicle.ID]vehicle.State{id: s}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("keeper", func(t *testing.T) { // ends the feeds
		k, _ := storetest.RunKeeper(t, e, store.Config{})
		for range filledTokens {
			storetest.Issue(t, k, access.VehicleSet("carA", "carB"))
		}
		if err := k.Audit(ctx, access.Event{Actor: "admin", Action: "test"}); err != nil {
			t.Fatal(err)
		}
	})
}

// refused opens a directory that must be refused with one line.
func refused(t *testing.T, c cluster.Config, want string) {
	t.Helper()
	e, err := cluster.Open(t.Context(), c)
	if err == nil {
		e.Close()
		t.Fatal("it was opened")
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, want) {
		t.Fatalf("the error is %q; want one line with %q", text, want)
	}
}

// tree describes every file below a path. The paths under /proc are described
// by their names only: their content is the kernel's.
func tree(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, "/proc") {
			return nil // absent, or below a file
		}
		fmt.Fprint(&b, name)
		if d.Type().IsRegular() {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(content))
		}
		fmt.Fprintln(&b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
