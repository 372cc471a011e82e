package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// release runs `make release` for this machine's architecture.
func release(t *testing.T, version, dist string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "make", "-C", "../..", "release", "VERSION="+version, "ARCHES="+runtime.GOARCH,
		"DIST="+dist)
	c.Env = append(os.Environ(), "MAKEFLAGS=") // the flags of make test must not apply to this make
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestReleaseIsWhole checks that each file of a release is listed with its checksum, that the
// program prints its version, and that another build of the same commit gives the same bytes.
func TestReleaseIsWhole(t *testing.T) {
	t.Parallel()
	startsPrograms(t)
	const version = "v0.0.0-test"
	dist := filepath.Join(t.TempDir(), "dist")
	if out, err := release(t, version, dist); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := "carstate-" + version + "-linux-" + runtime.GOARCH
	begin := map[string]string{
		"CHANGES": "## [Unreleased]\n", "LICENSE": "", "NOTICE": "carstate",
		name: "\x7fELF", name + ".cdx.json": "{", "carstate.1": ".TH CARSTATE 1 \"\" \"carstate v0.0.0\\-test\"\n",
		"carstate.bash": "_carstate() {\n", "carstate.zsh": "#compdef carstate\n",
		"carstate.fish": "function __carstate_next\n",
	}
	files, err := os.ReadDir(dist)
	if err != nil || len(files) != len(begin)+1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	var sums []string
	for file, begins := range begin {
		text := readFile(t, filepath.Join(dist, file))
		sums = append(sums, fmt.Sprintf("%x  %s", sha256.Sum256([]byte(text)), file))
		if len(text) == 0 || !strings.HasPrefix(text, begins) {
			t.Errorf("%s begins with %.40q", file, text)
		}
	}
	listed := strings.Split(strings.TrimSpace(readFile(t, filepath.Join(dist, "SHA256SUMS"))), "\n")
	slices.Sort(listed)
	if slices.Sort(sums); !slices.Equal(listed, sums) {
		t.Errorf("SHA256SUMS has %q, want %q", listed, sums)
	}
	program := filepath.Join(dist, name)
	if out := tool(t, "", program, "version"); !strings.HasPrefix(out, "carstate "+version+" ") ||
		!strings.HasSuffix(out, " linux/"+runtime.GOARCH+"\n") {
		t.Errorf("the program says %q", out)
	}
	if text := readFile(t, program+".cdx.json"); !strings.Contains(text, `"version": "`+version+`"`) ||
		!strings.Contains(text, `"pkg:golang/`) {
		t.Errorf("the list of modules: %.200s", text)
	}
	tool(t, "", "../../scripts/reproduce.sh", program, strings.TrimSpace(tool(t, "", "go", "env", "GOCACHE")))
}

// TestReleaseRefuses checks that `make release` refuses a wrong version, changes that are not
// committed, and a directory that holds anything else. It must print a line that says what to do.
func TestReleaseRefuses(t *testing.T) {
	startsPrograms(t)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ version, dist, says string }{
		{"v9.9.9", "", "CHANGELOG.md has no section [9.9.9]"},
		{"v0.1.0-3-gabc-dirty", "", "changes that no commit has"},
		{"a/b", "", "VERSION is a tag"},
		{"v0.0.0-test", full, "holds something else than a release"},
	} {
		dist := c.dist
		if dist == "" {
			dist = filepath.Join(t.TempDir(), "dist")
		}
		out, err := release(t, c.version, dist)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v\n%s", c.version, err, out)
		}
		if _, err := os.Stat(filepath.Join(dist, "SHA256SUMS")); err == nil {
			t.Errorf("%s: there is a release", c.version)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Error(err)
	}
}
