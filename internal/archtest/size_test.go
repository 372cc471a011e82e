package archtest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxMainLines = 40        // of cmd/carstate/main.go: the rest is in run, which tests call
	maxFileBytes = 400 << 10 // of any file in the repository, in bytes
)

// TestFileSizes checks the size of every file that git tracks or would add.
func TestFileSizes(t *testing.T) {
	files := trackedFiles(t)
	if len(files) < 10 {
		t.Fatalf("git lists %d files", len(files))
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not committed yet
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if complaint := tooLarge(name, content); complaint != "" {
			t.Errorf("%s %s", name, complaint)
		}
	}
}

// trackedFiles returns the files that git tracks or would add, by their paths from the root. Given
// patterns, it returns only the files that match one of them.
func trackedFiles(t *testing.T, patterns ...string) []string {
	t.Helper()
	// The checkout may belong to another user, as in a container.
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard", "--"}, patterns...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("this test needs git and a checkout: %v\n%s", err, &stderr)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// tooLarge returns what is wrong with the size of a file, or "" if nothing is.
func tooLarge(name string, content []byte) string {
	switch {
	case len(content) > maxFileBytes:
		return "is larger than 400 KB: cut it, or keep it outside the repository"
	case name == "cmd/carstate/main.go" && bytes.Count(content, []byte("\n")) > maxMainLines:
		return "has more than 40 lines: what it does belongs where tests can call it"
	}
	return ""
}
