package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

// TestAuditTime_IsThatOfTheAPI checks that the command accepts the times that the API accepts, and
// no others except ages.
func TestAuditTime_IsThatOfTheAPI(t *testing.T) {
	var api ops.Operations
	for _, text := range []string{"2026-11-20", "2026-11-20T12:00", "2026-11-20T12:00:00", "2026-11-20T12:00:00Z",
		"2026-11-20T12:00:00+01:00", "2026-11-20T12", "2026-11-20 12:00", "12:00"} {
		_, err := api.AskedAudit(url.Values{"since": {text}})
		got, ok := auditTime(text, time.Now())
		if ok != (err == nil) || got != text {
			t.Errorf("%s: got %q, %t, the API says %v", text, got, ok, err)
		}
	}
}

// TestAudit_SkipsEmptyPages checks that a page without events does not end the audit if there are
// older events. A search by a rare filter has such pages.
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
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
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
