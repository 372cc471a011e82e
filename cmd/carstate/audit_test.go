package main

import (
	"strings"
	"testing"
)

// TestAuditCommandExports checks that the command audit prints at most --limit events in a table,
// and exports all matching events as CSV and NDJSON.
func TestAuditCommandExports(t *testing.T) {
	p := start(t, t.TempDir())
	p.issue(t)
	p.addSource(t, "first")
	p.addSource(t, "second")
	if out := p.carstate(t, "audit", "--limit", "1"); strings.Count(out, "source.add  second") != 1 ||
		strings.Contains(out, "first") {
		t.Errorf("the newest event:\n%s", out)
	}
	out := p.carstate(t, "audit", "--action", "source", "--format", "csv")
	if lines := strings.Split(out, "\n"); len(lines) != 4 || lines[0] != "time,actor,admin,action,object,detail,outcome" ||
		!strings.Contains(lines[1], ",admin,true,source.add,second,") || !strings.Contains(lines[2], ",first,") {
		t.Errorf("as CSV:\n%s", out)
	}
	out = p.carstate(t, "audit", "--format", "ndjson", "--since", "1h")
	if strings.Count(out, "\n") != 3 || strings.Count(out, `"actor":"admin"`) != 3 {
		t.Errorf("as NDJSON:\n%s", out)
	}
}
