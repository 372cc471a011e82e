package archtest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	testkit.NoError(t, err)
	return string(content)
}

func output(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: got %v, want no error:\n%s", cmd, err, &stderr)
	}
	return out
}

func trackedFiles(t *testing.T, patterns ...string) []string {
	t.Helper()
	list := output(t, "git", append([]string{"-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard", "--"}, patterns...)...)
	files := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(name string) bool {
		return !exists(filepath.Join(root, name)) // deleted, but not committed yet
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func documents(t *testing.T) []string {
	t.Helper()
	names := trackedFiles(t, "*.md")
	if len(names) < 10 {
		t.Fatalf("the documents: got %d, want 10 or more", len(names))
	}
	return names
}
