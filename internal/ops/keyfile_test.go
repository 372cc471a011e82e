package ops_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
)

func TestKeyIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	if _, err := ops.LoadKey(dir); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Fatalf("the key before there is one: got %v, want an error that names --data-dir", err)
	}
	keys := make([]string, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = ops.LoadOrCreateKey(dir); err != nil {
				t.Errorf("LoadOrCreateKey: got %v, want no error", err)
			}
		})
	}
	wg.Wait()
	testkit.NoError(t, access.Check(access.AdminKind, []byte(keys[0])))
	loaded, err := ops.LoadKey(dir)
	testkit.NoError(t, err)
	for _, key := range keys {
		if key != loaded {
			t.Fatal("16 callers at a time: got two keys, want one")
		}
	}
	info, err := os.Stat(ops.KeyFile(dir))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the key file: got mode %v, %v; want %v", info.Mode(), err, os.FileMode(0o600))
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("the directory: got %v, want admin.key alone", files)
	}
}

func TestKeyRefused(t *testing.T) {
	key, _ := access.NewSecret(access.AdminKind)
	token, _ := access.NewSecret(access.TokenKind)
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"readable by the group": {key, 0o640, "chmod 600"},
		"readable by all":       {key, 0o604, "chmod 600"},
		"writable by others":    {key, 0o602, "chmod 600"},
		"empty":                 {"", 0o600, "holds no admin key"},
		"a token":               {token, 0o600, "holds no admin key"},
		"cut off":               {key[:39], 0o600, "holds no admin key"},
		"mistyped":              {key[:39] + "-", 0o600, "holds no admin key"},
		"two keys":              {key + "\n" + key, 0o600, "holds no admin key"},
		"long":                  {strings.Repeat(key, 1000), 0o600, "holds no admin key"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "admin.key")
		testkit.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
		testkit.NoError(t, os.Chmod(file, tt.mode))
		for _, load := range []func(string) (string, error){ops.LoadKey, ops.LoadOrCreateKey} {
			got, err := load(dir)
			if err == nil || got != "" || !strings.Contains(err.Error(), tt.says) ||
				!strings.Contains(err.Error(), file) {
				t.Errorf("%s: got %q, %v; want an error with %q and the file", name, got, err, tt.says)
			} else if strings.Contains(err.Error(), key[4:20]) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got the error %q, want one line without the key", name, err)
			}
		}
		if now, _ := os.ReadFile(file); string(now) != tt.text {
			t.Errorf("%s: got the file %.50q, want %.50q", name, now, tt.text)
		}
	}
}

// Another user can read it, even if the service runs as root. A command of root may use every key.
func TestKeyOfAnotherOwner(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root can give a file away
	}
	dir := t.TempDir()
	key, err := ops.LoadOrCreateKey(dir)
	testkit.NoError(t, err)
	testkit.NoError(t, os.Chown(ops.KeyFile(dir), nobody, nobody))
	_, err = ops.LoadOrCreateKey(dir)
	for _, err := range []error{err, ops.CheckKey(dir)} {
		if err == nil || !strings.Contains(err.Error(), "belongs to another user (uid 65534)") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("the service: got %v, want one line about uid 65534", err)
		}
	}
	if got, err := ops.LoadKey(dir); err != nil || got != key {
		t.Errorf("a command of root's: got %v, the key %t; want the key", err, got == key)
	}
}

// A link may lead to a file that others can change, or create one elsewhere.
func TestKeyIsALink(t *testing.T) {
	there, elsewhere := t.TempDir(), t.TempDir()
	_, err := ops.LoadOrCreateKey(elsewhere)
	testkit.NoError(t, err)
	for _, to := range []string{ops.KeyFile(elsewhere), filepath.Join(elsewhere, "nothing")} {
		_ = os.Remove(ops.KeyFile(there))
		testkit.NoError(t, os.Symlink(to, ops.KeyFile(there)))
		_, loaded := ops.LoadKey(there)
		_, made := ops.LoadOrCreateKey(there)
		for _, err := range []error{loaded, made, ops.CheckKey(there)} {
			if err == nil || !strings.Contains(err.Error(), "is a symbolic link") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("a link to %s: got %v, want one line about a symbolic link", filepath.Base(to), err)
			}
		}
	}
	if files, _ := os.ReadDir(elsewhere); len(files) != 1 {
		t.Errorf("the directory behind the link: got %v, want admin.key alone", files)
	}
}

func TestKeyWithoutItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	if _, err := ops.LoadOrCreateKey(dir); err == nil {
		t.Error("a directory that does not exist: got a key in it, want an error")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory that does not exist: got %v, want that it is not made", err)
	}
	odd := t.TempDir()
	testkit.NoError(t, os.Mkdir(filepath.Join(odd, "admin.key"), 0o700))
	if _, err := ops.LoadOrCreateKey(odd); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a directory in place of the file: got %v, want that it is not a file", err)
	}
}

// For a command, the error names the user that must run it.
func TestKeyOfAnotherUser(t *testing.T) {
	if os.Getuid() == 0 { // reads everything
		if os.Getenv("KEY_DIR") == "" {
			askAsNobody(t)
			return
		}
		for _, id := range []func(int) error{syscall.Setgid, syscall.Setuid} {
			testkit.NoError(t, id(nobody))
		}
	}
	dir := cmp.Or(os.Getenv("KEY_DIR"), t.TempDir())
	if os.Getenv("KEY_DIR") == "" {
		testkit.NoError(t, os.WriteFile(ops.KeyFile(dir), nil, 0))
	}
	if _, err := ops.LoadKey(dir); err == nil || !strings.Contains(err.Error(), "is another user's") ||
		!strings.Contains(err.Error(), "(--key-file)") {
		t.Errorf("a command: got %v, want that the key is another user's, and --key-file", err)
	}
	if err := ops.CheckKey(dir); err == nil || !strings.Contains(err.Error(), "is another user's") ||
		strings.Contains(err.Error(), "--key-file") {
		t.Errorf("the service: got %v, want that the key is another user's, without --key-file", err)
	}
}

// File permissions apply to its processes.
const nobody = 65534

// askAsNobody runs the calling test again as nobody, with a key of root in KEY_DIR.
func askAsNobody(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "carstate-key-") // others can enter it
	testkit.NoError(t, err)
	defer os.RemoveAll(dir)
	testkit.NoError(t, os.Chmod(dir, 0o755))
	_, err = ops.LoadOrCreateKey(dir)
	testkit.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), "KEY_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the test as nobody: got %v, want no error:\n%s", err, out)
	}
}
