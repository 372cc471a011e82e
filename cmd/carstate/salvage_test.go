package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

// Tokens, keys and states are there, and salvage refuses a directory in use.
func TestSalvagedDirectoryServes(t *testing.T) {
	dir, salvaged := t.TempDir(), filepath.Join(t.TempDir(), "salvaged")
	p := start(t, dir)
	token, key := p.issue(t), p.addSource(t, "gateway")
	if _, err := post(p, key, []string{"before"}); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, until(testkit.Patience, func() error { return p.folded(token, "before", p.began) }))
	began := p.began
	salvage := func() (string, error) {
		out, err := exec.Command(binary, "salvage", dir, salvaged).CombinedOutput()
		return string(out), err
	}
	if out, err := salvage(); err == nil || !strings.Contains(out, "in use by another carstate") {
		t.Errorf("salvage of a directory in use: %v: %s", err, out)
	}
	p.stop(t)
	if out, err := salvage(); err != nil || !strings.Contains(out, "everything was read") ||
		!strings.Contains(out, "STATES     1") {
		t.Fatalf("salvage: %v: %s", err, out)
	}
	p = start(t, salvaged)
	testkit.NoError(t, until(testkit.Patience, func() error { return p.folded(token, "before", began) }))
	if _, err := post(p, key, []string{"after"}); err != nil {
		t.Error(err)
	}
	p.carstate(t, "token", "list") // uses the admin key
	p.stop(t)
}
