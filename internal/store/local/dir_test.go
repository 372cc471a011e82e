package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func filled(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	e := mustOpen(t.Context(), t, Config{DataDir: dir, Partitions: 4})
	testkit.NoError(t, e.Append(testkit.Context(t), []vehicle.Sample{sample("v", 1000, 50)}))
	testkit.NoError(t, e.Close())
	testkit.NoError(t, os.RemoveAll(filepath.Join(dir, reserveDir))) // 64 MB
	return dir
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(dir, "/proc") {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, name, info.Mode(), info.Size())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%x\n", sha256.Sum256(text))
		}
		return nil
	})
	testkit.NoError(t, err)
	return b.String()
}

// Open refuses each directory twice, in one line with the reason, and changes nothing.
func TestDataDirRefused(t *testing.T) {
	t.Parallel()
	write := func(text string, names ...string) func(dir string) error {
		return func(dir string) (err error) {
			for _, name := range names {
				name = filepath.Join(dir, name)
				err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
			}
			return err
		}
	}
	chmod := func(mode os.FileMode) func(dir string) error {
		return func(dir string) error { return os.Chmod(dir, mode) }
	}
	linkLock := func(dir string) error {
		lock := filepath.Join(dir, lockFile)
		return errors.Join(os.Remove(lock), os.Symlink("elsewhere", lock))
	}
	none := func(string) error { return nil }
	const thesis = "do not lose this"
	type refusal struct {
		spoil func(dir string) error
		open  string // directory to open, below the spoiled one
		want  string
	}
	cases := map[string]refusal{
		"a foreign directory":             {write(thesis, "dir/thesis.tex"), "dir", "not carstate's"},
		"a foreign directory with a lock": {write(thesis, "dir/thesis.tex", "dir/lock"), "dir", "not carstate's"},
		"a corrupt identity":              {write(`{"format":8,"par`, identityFile, identityCopy), "", "damaged"},
		"an identity without a format":    {write(`{}`, identityFile, identityCopy), "", "damaged"},
		"an identity without a sum": {
			write(`{"format":8,"partitions":4,"ready":true}`, identityFile, identityCopy), "", "damaged"},
		"a newer format": {
			write(`{"format":9,"partitions":4,"ready":true}`, identityFile), "", "newer carstate"},
		"an older format": {
			write(`{"format":7,"partitions":4,"ready":true}`, identityFile), "", "older carstate"},
		"below a file":                   {none, identityFile + "/data", "not a directory"},
		"a file":                         {none, identityFile, "not a directory"},
		"a file system that refuses":     {none, "/proc/carstate-data", "cannot be created"},
		"a directory that refuses":       {none, "/proc/self/fdinfo", "not carstate's"},
		"a directory that others change": {chmod(0o777), "", "can be changed by other users"},
		"a directory like /tmp":          {chmod(0o777 | os.ModeSticky), "", "can be changed by other users"},
		"a lock that is a link":          {linkLock, "", "lock is not a file"},
	}
	if os.Getuid() == 0 {
		chown := func(dir string) error { return os.Chown(dir, nobody, nobody) }
		cases["a directory of another user"] = refusal{chown, "", "belongs to another user (uid 65534)"}
	}
	whole := filled(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			testkit.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
			testkit.NoError(t, c.spoil(dir))
			if dir = filepath.Join(dir, c.open); filepath.IsAbs(c.open) {
				dir = c.open
			}
			before := tree(t, dir)
			for range 2 {
				refused(t, Config{DataDir: dir}, c.want)
				if after := tree(t, dir); after != before {
					t.Fatalf("the directory: got\n%s\nwant\n%s", after, before)
				}
			}
		})
	}
}

func TestOpen_IdentityFromItsCopy(t *testing.T) {
	t.Parallel()
	whole := filled(t)
	for name, spoil := range map[string]func(file string, text []byte) error{
		"lost":  func(file string, _ []byte) error { return os.Remove(file) },
		"empty": func(file string, _ []byte) error { return os.WriteFile(file, nil, 0o600) },
		"a wrong sum": func(file string, text []byte) error {
			return os.WriteFile(file, bytes.Replace(text, []byte(`"sum": `), []byte(`"sum": 1`), 1), 0o600)
		},
	} {
		dir := t.TempDir()
		testkit.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
		file := filepath.Join(dir, identityFile)
		text, err := os.ReadFile(file)
		testkit.NoError(t, err)
		testkit.NoError(t, errors.Join(spoil(file, text), CheckFormat(dir, 4)))
		for _, warns := range []bool{true, false} {
			log := new(testkit.Buffer)
			c := Config{DataDir: dir, Log: slog.New(slog.NewTextHandler(log, nil))}
			e := mustOpen(t.Context(), t, c)
			if got := log.Count("written again from its copy") == 1; got != warns {
				t.Errorf("%s: warned: %t, want %t", name, got, warns)
			}
			if end := e.telemetryEnd(); end != 1 || e.Partitions() != 4 {
				t.Errorf("%s: got the end %d, %d partitions; want one group in 4", name, end, e.Partitions())
			}
			testkit.NoError(t, e.Close())
		}
	}
}

func refused(t *testing.T, c Config, want string) {
	t.Helper()
	e, err := Open(context.Background(), c)
	if err == nil {
		t.Fatalf("Open: got no error, want one with %q; Close: %v", want, e.Close())
	}
	if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got the error %v, want one line with %q", err, want)
	}
}

func TestDataDirInUse(t *testing.T) {
	t.Parallel()
	c := Config{FS: vfs.NewMem(), DataDir: "/data", Partitions: 4}
	e := mustOpen(t.Context(), t, c)
	refused(t, c, "in use by another carstate")
	testkit.NoError(t, e.Close())
	c.Partitions = 5
	refused(t, c, "was made with 4 partitions")
}

// With childVariable, the test binary opens the directory that it names, as a child of a test.
const childVariable = "CARSTATE_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := openAsNobody(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const nobody = 65534

// A process of root becomes one of the user nobody, for good.
func openAsNobody(dir string) error {
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	e, err := Open(context.Background(), Config{DataDir: dir})
	if err != nil {
		return err
	}
	return e.Close()
}

func giveToNobody(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	for up := filepath.Dir(dir); up != filepath.Clean(os.TempDir()) && up != "/"; up = filepath.Dir(up) {
		testkit.NoError(t, os.Chmod(up, 0o755))
	}
	testkit.NoError(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, nobody, nobody))
	}))
}

// Open names the missing permission, changes nothing, and succeeds once it is back.
func TestDataDirPermissions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		file string
		mode os.FileMode
		want string
	}{
		"the store not writable":     {"store", 0o500, "cannot be written (store: permission denied)"},
		"the store not readable":     {"store", 0o000, "cannot be read (store: permission denied)"},
		"a log not writable":         {"store/*.log", 0o400, ".log: permission denied)"},
		"the directory not writable": {".", 0o500, "cannot be written: permission denied"},
		"the directory not readable": {".", 0o300, "cannot be read: permission denied"},
		"the identity not readable":  {identityFile, 0o200, "cannot be read (carstate.json: permission denied)"},
		"the lock is another's":      {lockFile, 0o000, "cannot be written: permission denied"},
	}
	whole := filled(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			testkit.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
			giveToNobody(t, dir)
			before := tree(t, dir)
			files, err := filepath.Glob(filepath.Join(dir, c.file))
			if err != nil || len(files) == 0 {
				t.Fatalf("files like %s: got %q, error %v; want some", c.file, files, err)
			}
			info, err := os.Stat(files[0])
			testkit.NoError(t, err)
			chmod := func(mode os.FileMode) {
				t.Helper()
				testkit.NoError(t, os.Chmod(files[0], mode))
			}
			chmod(c.mode)
			out, err := child(t, dir).CombinedOutput()
			if err == nil {
				t.Fatalf("Open: got no error, want one with %q", c.want)
			}
			if text := strings.TrimSpace(string(out)); strings.Contains(text, "\n") ||
				strings.Contains(text, "damaged") ||
				!strings.Contains(text, c.want+": check its owner and permissions") {
				t.Fatalf("the error is %q; want one line with %q and what to do", text, c.want)
			}
			chmod(info.Mode())
			if tree(t, dir) != before {
				t.Fatalf("the directory: got\n%s\nwant\n%s", tree(t, dir), before)
			}
			if out, err := child(t, dir).CombinedOutput(); err != nil {
				t.Fatalf("with the permissions back: got %v, want no error: %s", err, out)
			}
		})
	}
}

func child(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	testkit.NoError(t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), childVariable+"="+dir)
	return c
}

func TestTrim_KeepsUnfoldedAndYoung(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	clock := testkit.NewClock(time.Now())
	e := open(t, Config{Now: clock.Now, Retention: time.Hour})
	first := func() uint64 {
		t.Helper()
		testkit.NoError(t, e.trim())
		seq, _, err := e.firstGroup(0, 0, forwards)
		testkit.NoError(t, err)
		return seq
	}
	for i := range int64(6) {
		put(ctx, t, e, sample("v", 1000*i+1000, 50))
		clock.Advance(20 * time.Minute)
	}
	if got := first(); got != 1 {
		t.Errorf("the first while nothing is folded: got %d, want 1", got)
	}
	p := take(ctx, t, e, 0)
	save(ctx, t, p, 1, 2)
	if got := first(); got != 3 {
		t.Errorf("the first when two are folded and two hours old: got %d, want 3", got)
	}
	save(ctx, t, p, 2, 6)
	if got := first(); got != 4 {
		t.Errorf("the first when three are within the hour: got %d, want 4", got)
	}
}

// Samples are refused while the oldest unfolded one is older than half of the retention, and
// accepted once it is folded, even if its state is not stored.
func TestBacklog_OfUnfoldedSamples(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	clock := testkit.NewClock(time.Now())
	metrics := prometheus.NewRegistry()
	e := open(t, Config{Now: clock.Now, Retention: time.Hour, Partitions: 2, Registry: metrics})
	put(ctx, t, e, sample("v", 1000, 50))
	clock.Advance(31 * time.Minute)
	n := codec.PartitionOf("v", 2)
	backlog := func(n int) float64 {
		e.measureBacklog()
		return testkit.Metric(t, metrics, store.MetricBacklog, "partition", strconv.Itoa(n))
	}
	if got, other := backlog(n), backlog(1-n); got < 31*60 || got > 32*60 || other != 0 {
		t.Errorf("age of the backlog: got %v s and %v s in the other partition, want 31 minutes and 0", got, other)
	}
	if err := e.Append(ctx, []vehicle.Sample{sample("v", 2000, 50)}); !errors.Is(err, store.ErrBacklog) {
		t.Errorf("Append with a sample that waits too long: got %v, want ErrBacklog", err)
	}
	p := take(ctx, t, e, n)
	defer p.Close()
	_, err := p.Next(ctx)
	testkit.NoError(t, err)
	// The owner tells that the sample is folded by asking for the next one.
	asking, stop := context.WithCancel(ctx)
	var asked sync.WaitGroup
	asked.Go(func() { p.Next(asking) })
	defer asked.Wait()
	defer stop()
	testkit.Await(t, "the sample to be folded", func() bool { return backlog(n) == 0 })
	if err := e.Append(ctx, []vehicle.Sample{sample("v", 3000, 50)}); err != nil {
		t.Errorf("Append after the sample was folded: got %v, want nil", err)
	}
	if got := e.partitions[n].cursor.Load(); got != 0 {
		t.Errorf("cursor: got %d, want 0, because no state is stored", got)
	}
}
