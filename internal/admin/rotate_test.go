package admin_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
)

func TestRotateAnswersExactly(t *testing.T) {
	s := start(t)
	tok, src := s.issue(t), s.add(t, "gateway")
	rotated := `{"id":"` + tok.ID + `","access_token":"(cst_[0-9A-Za-z]{36})","developer":"Ada","expires_at":null,` +
		`"earlier_until":\[`
	for _, tt := range []struct{ body, until string }{
		{`{"overlap_seconds":3600}`, `"2026-11-20T13:00:00Z"`},
		{`{"overlap_seconds":7200}`, `"2026-11-20T13:00:00Z","2026-11-20T14:00:00Z"`},
		{`{"overlap_seconds":0}`, ``},
	} {
		s.wantSecret(t, s.store.Tokens.Verify, "/v1/tokens/"+tok.ID+"/rotate", tt.body, http.StatusOK, rotated+tt.until+`\]}`)
	}
	s.wantSecret(t, s.store.Sources.Verify, "/v1/sources/gateway/rotate", ``, http.StatusOK,
		`{"name":"gateway","key":"(css_[0-9A-Za-z]{36})","earlier_until":\["2026-11-21T12:00:00Z"\]}`)
	events := s.store.Events()
	if got, want := events[len(events)-1].Detail, "the old one stays valid for another 24 h"; got != want {
		t.Errorf("in the audit: got %q, want %q", got, want)
	}
	if _, err := s.store.Tokens.Verify([]byte(tok.AccessToken), noon); !errors.Is(err, access.ErrReplaced) {
		t.Errorf("the first secret, after a rotation without overlap: got %v, want %v", err, access.ErrReplaced)
	}
	if _, err := s.store.Sources.Verify([]byte(src.Key), noon); err != nil {
		t.Errorf("the old key, which has a day left: got %v, want no error", err)
	}
	show, err := s.Source(t.Context(), "gateway")
	if err != nil || len(show.EarlierUntil) != 1 || show.EarlierUntil[0] != noon.Add(24*time.Hour) {
		t.Errorf("the source: got %+v, %v; want an earlier key until %v", show, err, noon.Add(24*time.Hour))
	}
	s.clock.Advance(24 * time.Hour)
	if show, err = s.Source(t.Context(), "gateway"); err != nil || len(show.EarlierUntil) != 0 {
		t.Errorf("the source a day later: got %+v, %v; want no earlier key", show, err)
	}
}

func TestRotateRefuses(t *testing.T) {
	s := start(t)
	tok, src := s.issue(t), s.add(t, "gateway")
	revoked, removed := s.issue(t), s.add(t, "removed")
	testkit.NoError(t, second(s.RevokeToken(t.Context(), revoked.ID)))
	testkit.NoError(t, second(s.RemoveSource(t.Context(), removed.Name)))
	for _, tt := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"tokens/" + tok.ID, `{"overlap_seconds":-1}`, 400, "from 0 to 7776000"},
		{"tokens/" + tok.ID, `{"overlap_seconds":7776001}`, 400, "from 0 to 7776000"},
		{"tokens/" + tok.ID, `{"overlap_seconds":9223372036854775807}`, 400, "from 0 to 7776000"},
		{"tokens/" + tok.ID, `{"overlap_seconds":1.5}`, 400, "wrong type"},
		{"tokens/" + tok.ID, `{"overlap":"24h"}`, 400, "this call takes overlap_seconds"},
		{"tokens/" + revoked.ID, ``, 409, "it was revoked"},
		{"tokens/cstid000000000000", ``, 404, "no such token"},
		{"sources/" + src.Name, `{"overlap_seconds":-1}`, 400, "from 0 to 7776000"},
		{"sources/removed", ``, 404, "no such source"},
		{"sources/nobody", ``, 404, "no such source"},
	} {
		s.want(t, "POST", "/v1/"+tt.path+"/rotate", tt.body, tt.status, tt.says)
	}
	for range 8 {
		testkit.NoError(t, second(s.RotateToken(t.Context(), tok.ID, time.Hour)))
	}
	if _, err := s.RotateToken(t.Context(), tok.ID, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "8 replaced secrets are still valid") {
		t.Errorf("a ninth earlier secret: got %v, want that 8 are still valid", err)
	}
}

func TestSandboxToken(t *testing.T) {
	s := start(t)
	tok := s.issueAs(t, access.Credential{Kind: access.SandboxKind})
	if !strings.HasPrefix(tok.AccessToken, "cstest_") || tok.Vehicles.All() || tok.Vehicles.Len() != 11 {
		t.Errorf("a sandbox token: got %.7s… of %d vehicles, want cstest_… of 11", tok.AccessToken, tok.Vehicles.Len())
	}
	show, err := s.Token(t.Context(), tok.ID)
	if err != nil || !show.Sandbox || show.VehicleCount.N != 11 {
		t.Errorf("the sandbox token: got %+v, %v; want 11 vehicles of the sandbox", show, err)
	}
	rotated, err := s.RotateToken(t.Context(), tok.ID, 0)
	if err != nil || !strings.HasPrefix(rotated.AccessToken, "cstest_") {
		t.Errorf("the rotated sandbox token: got %.7s…, %v; want cstest_…", rotated.AccessToken, err)
	}
	for _, tt := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/tokens", `{"developer":"Ada","sandbox":true,"vehicles":"all"}`, 400, "leave vehicles out"},
		{"/v1/tokens", `{"developer":"Ada","sandbox":true,"vehicles":["A"]}`, 400, "leave vehicles out"},
		{"/v1/tokens", `{"developer":"Ada","sandbox":false}`, 400, "vehicles are missing"},
		{"/v1/tokens/" + tok.ID + "/grant", `{"add":["A"]}`, 409, "reserved vehicles"},
		{"/v1/tokens/" + tok.ID + "/grant", `{"remove":["SandboxJam"]}`, 200, `"vehicle_count":10`},
		{"/v1/tokens/" + tok.ID + "/grant", `{"add":["SandboxJam"]}`, 200, `"vehicle_count":11`},
	} {
		s.want(t, "POST", tt.path, tt.body, tt.status, tt.says)
	}
}

func TestUsageIsShown(t *testing.T) {
	s := start(t)
	tok := s.issue(t)
	g, _ := s.store.Tokens.Get(tok.ID)
	g.Count(access.Stale, noon)
	g.Count(access.Replaced, noon.Add(-time.Minute))
	s.store.Tokens.NoteUsage(tok.ID, access.Usage{Calls: 110, Refusals: 5}, false)
	show, err := s.Token(t.Context(), tok.ID)
	testkit.NoError(t, err)
	if show.Usage != (ops.TokenUsage{Calls: 112, Refusals: 6}) {
		t.Errorf("got usage %+v, want 112 calls and 6 refusals", show.Usage)
	}
	if show.LastRefusedReason != "replaced" || show.LastRefusedAt == nil ||
		*show.LastRefusedAt != noon.Add(-time.Minute) {
		t.Errorf("the last refusal: got %q at %v, want replaced at %v", show.LastRefusedReason, show.LastRefusedAt,
			noon.Add(-time.Minute))
	}
}
