package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

func TestAuditCommandExports(t *testing.T) {
	p := start(t, t.TempDir())
	p.issue(t)
	p.addSource(t, "first")
	p.addSource(t, "second")
	if out := p.carstate(t, "audit", "--limit", "1"); strings.Count(out, "source.add  second") != 1 ||
		strings.Contains(out, "first") {
		t.Errorf("--limit 1: got\n%s\nwant source.add of second alone", out)
	}
	out := p.carstate(t, "audit", "--action", "source", "--format", "csv")
	if lines := strings.Split(out, "\n"); len(lines) != 4 || lines[0] != "time,actor,admin,action,object,detail,outcome" ||
		!strings.Contains(lines[1], ",admin,true,source.add,second,") || !strings.Contains(lines[2], ",first,") {
		t.Errorf("--format csv: got\n%s\nwant a header, then the sources second and first", out)
	}
	out = p.carstate(t, "audit", "--format", "ndjson", "--since", "1h")
	if strings.Count(out, "\n") != 3 || strings.Count(out, `"actor":"admin"`) != 3 {
		t.Errorf("--format ndjson: got\n%s\nwant 3 events of admin", out)
	}
}

// A search by a rare filter has pages without events before the last.
func TestAudit_SkipsEmptyPages(t *testing.T) {
	pages := map[string]string{
		"":  `{"events":[],"older":9}`,
		"9": `{"events":[{"actor":"ada"}],"older":4}`,
		"4": `{"events":[{"actor":"ada"}],"older":0}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, pages[r.URL.Query().Get("before")])
	}))
	defer server.Close()
	key, _ := access.NewSecret(access.OperatorKind)
	file := filepath.Join(t.TempDir(), "key")
	testkit.NoError(t, os.WriteFile(file, []byte(key), 0o600))
	const more = "There may be older events: --limit 0 shows all.\n"
	for limit, want := range map[string]struct {
		events int
		note   string
	}{"0": {2, ""}, "1": {1, more}, "2": {2, ""}, "3": {2, ""}} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"audit", "--limit", limit, "--admin-addr", server.URL, "--key-file", file},
			&stdout, &stderr)
		if got := strings.Count(stdout.String(), "ada"); code != exitOK || got != want.events || stderr.String() != want.note {
			t.Errorf("limit %s: got exit code %d, %d events, want %d; stderr: %s", limit, code, got, want.events, &stderr)
		}
	}
}
