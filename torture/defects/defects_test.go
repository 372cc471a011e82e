package defects

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

func TestPatches_FitAndCompile(t *testing.T) {
	root, err := filepath.Abs("../..")
	testkit.NoError(t, err)
	names, err := filepath.Glob("*.patch")
	if err != nil || len(names) == 0 {
		t.Fatalf("the patches: got %d, %v, want some", len(names), err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overlay, err := Overlay(root, strings.TrimSuffix(name, ".patch"), t.TempDir())
			text, err2 := os.ReadFile(name)
			testkit.NoError(t, errors.Join(err, err2))
			args := []string{"list", "-export", "-overlay", overlay}
			for _, m := range changed.FindAllStringSubmatch(string(text), -1) {
				args = append(args, "./"+path.Dir(m[1]))
			}
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = root, append(cmd.Environ(), "GOWORK=") // which torture is not in
			if out, err := cmd.CombinedOutput(); err != nil || len(args) == 4 {
				t.Errorf("%q: got %v, want that it compiles and changes something\n%s", name, err, out)
			}
		})
	}
}
