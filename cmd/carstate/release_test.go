package main_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func release(t *testing.T, version, dist string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "make", "-C", "../..", "release", "VERSION="+version, "ARCHES="+runtime.GOARCH,
		"DIST="+dist)
	c.Env = append(os.Environ(), "MAKEFLAGS=") // not the flags of make test
	out, err := c.CombinedOutput()
	return string(out), err
}

// Each file has its checksum, another build gives the same bytes, and each package works in an
// empty project.
func TestReleaseIsWhole(t *testing.T) {
	t.Parallel()
	startsPrograms(t)
	const version = "v0.0.0-rc.1"
	dist := filepath.Join(t.TempDir(), "dist")
	if out, err := release(t, version, dist); err != nil {
		t.Fatalf("the release of %s: got %v, want no error\n%s", version, err, out)
	}
	name := "carstate-" + version + "-linux-" + runtime.GOARCH
	begin := map[string]string{
		"CHANGES": "## [Unreleased]\n", "LICENSE": "", "NOTICE": "carstate",
		name: "\x7fELF", name + ".cdx.json": "{",
		"carstate.bash": "_carstate() {\n", "carstate.zsh": "#compdef carstate\n",
		"carstate.fish":                      "function __carstate_next\n",
		"carstate-0.0.0rc1-py3-none-any.whl": "PK", "carstate-0.0.0-rc.1.tgz": "\x1f\x8b",
	}
	for _, module := range []string{"", "/client"} {
		at := "go/example.org/carstate" + module + "/@v/"
		begin[at+"list"], begin[at+version+".info"], begin[at+version+".zip"] = version+"\n", `{"Version":"`+version, "PK"
		begin[at+version+".mod"] = "module example.org/carstate" + module + "\n"
	}
	var sums []string
	for file, begins := range begin {
		text := readFile(t, filepath.Join(dist, file))
		sums = append(sums, fmt.Sprintf("%x  %s", sha256.Sum256([]byte(text)), file))
		if len(text) == 0 || !strings.HasPrefix(text, begins) {
			t.Errorf("%s: got %.40q, want %q", file, text, begins)
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
		t.Errorf("the version: got %q, want %s linux/%s", out, version, runtime.GOARCH)
	}
	if text := readFile(t, program+".cdx.json"); !strings.Contains(text, `"version": "`+version+`"`) ||
		!strings.Contains(text, `"pkg:golang/`) || strings.Contains(text, "devel") {
		t.Errorf("the list of modules: got %.200s, want %s, packages of Go, not devel", text, version)
	}
	tool(t, "", "../../scripts/reproduce.sh", program, strings.TrimSpace(tool(t, "", "go", "env", "GOCACHE")))

	p := start(t, t.TempDir())
	modules := strings.TrimSpace(tool(t, "", "go", "env", "GOMODCACHE"))
	env := []string{"DIST=" + dist, "MODULES=" + modules,
		"GOPROXY=file://" + dist + "/go,file://" + modules + "/cache/download", "GOSUMDB=off",
		"GOFLAGS=-trimpath -buildvcs=false -modcacherw", "CGO_ENABLED=0", "VERSION=" + version}
	for _, c := range []struct{ file, page, script, prints string }{
		{"main.go", "docs/first-hour.md", `go mod init hello; go mod edit -go=1.23
			go get example.org/carstate/client@$VERSION; go run .
			GOBIN=$PWD go install -ldflags '-s -w' example.org/carstate/cmd/carstate@$VERSION
			./carstate version; ./carstate query car-driving-state SandboxJam`,
			`(?s)\ntraffic jam \(3\), as of .*\ncarstate ` + version + ` .*\ntraffic jam \(3\)`},
		{"main.py", "docs/first-hour.md", `python3 -m venv .; bin/pip install --no-index $DIST/*.whl
			test -f lib/*/site-packages/carstate/py.typed; bin/python -W error main.py`, `\n3\n$`},
		{"main.ts", "docs/first-hour.md", `npm init -y; npm pkg set type=module; npm i --offline $DIST/*.tgz
			$NPM/.bin/tsc --strict --target es2022 --module nodenext --typeRoots $NPM/@types --types node main.ts
			node main.js`, `\n3\n$`},
	} {
		t.Run(c.file, func(t *testing.T) {
			block := "(?s)```" + c.file[len("main."):] + "\\w*\n(.*?)```"
			text := regexp.MustCompile(block).FindStringSubmatch(readFile(t, "../../"+c.page))
			if text == nil {
				t.Fatalf("%s: got no block for %s, want one", c.page, c.file)
			}
			program := strings.ReplaceAll(text[1], "http://127.0.0.1:8080", p.URL(nodeprocess.Query))
			out := project(t, p, c.file, program, `export GOMODCACHE=$PWD/modules; mkdir -p modules/cache/download
				for m in $(cd "$MODULES"; ls -d -- * cache/download/*); do
					case $m in cache|*example.org) ;; *) ln -s "$MODULES/$m" "modules/$m" ;; esac
				done
				`+c.script, env...)
			if !regexp.MustCompile(c.prints).MatchString(out) {
				t.Errorf("got %s, want %s", out, c.prints)
			}
		})
	}
}

func TestReleaseRefuses(t *testing.T) {
	startsPrograms(t)
	full := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(full, "mine"), nil, 0o600))
	for _, c := range []struct{ version, dist, says string }{
		{"v0.1.0", "", "> **Version:** v0.1.0"},
		{"v0.1.0-3-gabc-dirty", "", "changes that no commit has"},
		{"a/b", "", "VERSION is a tag"},
		{"v0.0.0-rc.1", full, "holds something else than a release"},
	} {
		dist := cmp.Or(c.dist, filepath.Join(t.TempDir(), "dist"))
		out, err := release(t, c.version, dist)
		_, none := os.Stat(filepath.Join(dist, "SHA256SUMS"))
		if err == nil || none == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: got error %v, no release %v; want it refused with %q\n%s", c.version, err, none, c.says, out)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Errorf("the file that was there: got %v, want it kept", err)
	}
}
