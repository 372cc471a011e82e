package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

func TestCheckOfADirectory(t *testing.T) {
	dir, damaged, empty := t.TempDir(), t.TempDir(), t.TempDir()
	p := start(t, dir)
	token, key := p.issue(t), p.addSource(t, "gateway")
	_, err := post(p, key, []string{"car"})
	testkit.NoError(t, err)
	testkit.NoError(t, until(testkit.Patience, func() error { return p.folded(token, "car", p.began) }))
	check := func(what, dir string, wantCode int, want ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"check"}, strings.Fields(dir)...), &stdout, &stderr)
		for _, want := range append(want, "") {
			if code != wantCode || !strings.Contains(stdout.String()+stderr.String(), want) ||
				strings.Count(stderr.String(), "\n") > 1 || strings.Contains(stdout.String(), "<") {
				t.Errorf("%s: got exit code %d, %s%s, want %d and %q", what, code, &stdout, &stderr, wantCode, want)
			}
		}
	}
	check("running", dir, exitError, "in use by another carstate: stop that one and wait until it has ended\n")
	p.stop(t)
	testkit.NoError(t, os.CopyFS(damaged, os.DirFS(dir)))
	tables, err := filepath.Glob(damaged + "/store/*.sst")
	testkit.NoError(t, err)
	for _, name := range tables {
		b, err := os.ReadFile(name)
		testkit.NoError(t, err)
		b[len(b)/10] ^= 4
		testkit.NoError(t, os.WriteFile(name, b, 0o600))
	}
	check("stopped", dir, exitOK, "TELEMETRY  1     0 ", "TOKENS     2     0 ", dir+": everything can be read\n")
	check("stopped, as JSON", dir+" --json", exitOK, `"stream": "TELEMETRY",`)
	check("damaged", damaged, exitError, "the rest: pebble: file ", "is damaged (in ", "make a backup, if the service starts,")
	check("missing", dir+"/none", exitError, "none is not a data directory")
	check("empty", empty, exitError, "is not a data directory")
	check("a file", dir+"/lock", exitError, "lock cannot be read: not a directory")
	if left, err := os.ReadDir(empty); len(left) > 0 || err != nil {
		t.Errorf("an empty directory: got %v in it, %v, want it still empty", left, err)
	}
	began := p.began
	p = start(t, dir)
	testkit.NoError(t, until(testkit.Patience, func() error { return p.folded(token, "car", began) }))
	p.stop(t)
}
