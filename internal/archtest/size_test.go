package archtest

import (
	"strings"
	"testing"
)

const (
	maxMainLines = 40        // of cmd/carstate/main.go: the rest is in run, which tests call
	maxFileBytes = 400 << 10 // of any file in the repository, in bytes
)

// TestFileSizes checks that no file that git tracks or would add has more than maxFileBytes, and
// that cmd/carstate/main.go has at most maxMainLines.
func TestFileSizes(t *testing.T) {
	files := trackedFiles(t)
	if len(files) < 10 {
		t.Fatalf("git lists %d files", len(files))
	}
	for _, name := range files {
		switch content := read(t, name); {
		case len(content) > maxFileBytes:
			t.Errorf("%s is larger than 400 KB: cut it, or keep it outside the repository", name)
		case name == "cmd/carstate/main.go" && strings.Count(content, "\n") > maxMainLines:
			t.Errorf("%s has more than 40 lines: what it does belongs where tests can call it", name)
		}
	}
}
