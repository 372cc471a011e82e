package stream_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"carstate/internal/access"
	"carstate/internal/stream"
	"carstate/internal/vehicle"
)

// A directory that cannot be used is refused with one line and stays as it is,
// every time.
func TestDataDirRefused(t *testing.T) {
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
			put(t, filepath.Join(dir, "carstate.json"), `{"format":2,"partitions":4,"ready":true}`)
			return dir
		}, "newer carstate"},
		"marked as damaged": {func(t *testing.T, dir string) string {
			put(t, filepath.Join(dir, "carstate.json"), `{"format":1,"partitions":4,"ready":true,"damaged":"stream STATES is missing"}`)
			return dir
		}, "stream STATES is missing"},
		"a stream's description is missing": {func(t *testing.T, dir string) string {
			if err := os.Remove(meta(dir, stream.Sources)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "stream SOURCES"},
		"a stream's description is no JSON": {func(t *testing.T, dir string) string {
			put(t, meta(dir, stream.Tokens), "\x00\x00\x00")
			return dir
		}, "stream TOKENS"},
		"a stream's records are missing": {func(t *testing.T, dir string) string {
			if err := os.RemoveAll(filepath.Join(filepath.Dir(meta(dir, stream.Audit)), "msgs")); err != nil {
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
				refused(t, stream.Config{DataDir: dir}, c.want)
				if after := tree(t, dir); after != before {
					t.Fatalf("the directory was changed\nbefore:\n%s\nafter:\n%s", before, after)
				}
			}
		})
	}
}

// What a killed first start leaves, or mkfs, is no reason to refuse.
func TestDataDirBegins(t *testing.T) {
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
			e, err := stream.Open(t.Context(), stream.Config{DataDir: dir})
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
	dir := copyDir(t, filledDir(t))
	meta := filepath.Join(dir, "engine", "jetstream", "$G", "streams", stream.Tokens, "meta.inf")
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	put(t, meta, strings.Replace(string(text), `"max_bytes":1073741824`, `"max_bytes":1073741823`, 1))
	refused(t, stream.Config{DataDir: dir}, "stream TOKENS is missing")
	before := tree(t, dir)
	refused(t, stream.Config{DataDir: dir}, "stream TOKENS is missing")
	if tree(t, dir) != before {
		t.Fatal("the second refusal changed the directory")
	}
}

// filledDir returns a closed data directory with something in every stream.
func filledDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	e, err := stream.Open(t.Context(), stream.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

const (
	filledTokens  = 20
	filledStates  = 200
	filledSamples = 200
)

func fill(t *testing.T, e *stream.Engine) {
	t.Helper()
	ctx := timeout(t)
	for i := range filledSamples {
		if err := e.Append(ctx, []vehicle.Sample{sample("carA", int64(i+1), 30)}); err != nil {
			t.Fatal(err)
		}
	}
	part, err := e.Take(ctx, 0, "test")
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
		k, _, _ := keeper(t, e)
		for range filledTokens {
			issue(t, k, access.VehicleSet("carA", "carB"))
		}
		if err := k.Audit(ctx, access.Event{Actor: "admin", Action: "test"}); err != nil {
			t.Fatal(err)
		}
	})
}

// refused opens a directory that must be refused with one line.
func refused(t *testing.T, c stream.Config, want string) {
	t.Helper()
	e, err := stream.Open(t.Context(), c)
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
