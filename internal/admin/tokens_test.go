package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestIssueAnswersExactly(t *testing.T) {
	s := start(t)
	for _, tt := range []struct{ body, want string }{
		{
			`{"developer":"Ada","operations":["throttle_system"],"vehicles":["B","A"],` +
				`"expires_at":"2027-01-31T12:00:00+01:00","rate":"10/s"}`,
			`{"id":"cstid[0-9A-Za-z]{12}","access_token":"(cst_[0-9A-Za-z]{36})","developer":"Ada",` +
				`"operations":\["throttle_system"\],"vehicles":\["A","B"\],"expires_at":"2027-01-31T11:00:00Z",` +
				`"rate":"10/s"}`,
		},
		{
			`{"developer":"Ada","vehicles":"all"}`,
			`{"id":"cstid[0-9A-Za-z]{12}","access_token":"(cst_[0-9A-Za-z]{36})","developer":"Ada",` +
				`"operations":\["car_driving_state","throttle_system"\],"vehicles":"all",` +
				`"expires_at":"2027-02-18T12:00:00Z","rate":""}`,
		},
		{
			`{"developer":"Ada","vehicles":[],"expires_at":null}`,
			`{"id":"cstid[0-9A-Za-z]{12}","access_token":"(cst_[0-9A-Za-z]{36})","developer":"Ada",` +
				`"operations":\["car_driving_state","throttle_system"\],"vehicles":\[\],"expires_at":null,` +
				`"rate":""}`,
		},
	} {
		s.wantSecret(t, s.store.Tokens.Verify, "/v1/tokens", tt.body, http.StatusCreated, tt.want)
	}
}

func TestTokenListAndShow(t *testing.T) {
	s := start(t)
	if list, err := s.Tokens(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("the first list: got %v, %v; want no token", list, err)
	}
	if got := s.do(t, "GET", "/v1/tokens", ""); got.body != `{"tokens":[]}`+"\n" {
		t.Errorf("the first list: got %s, want an empty array", got.body)
	}
	first := s.issue(t)
	s.clock.Advance(time.Minute)
	second := s.issue(t)
	g, _ := s.store.Tokens.Get(second.ID)
	g.Count(access.Answered, noon.Add(time.Minute))

	list, err := s.Tokens(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != first.ID || list[1].ID != second.ID {
		t.Fatalf("the list: got %+v, %v; want %s and %s", list, err, first.ID, second.ID)
	}
	if list[0].LastUsedAt != nil || list[1].LastUsedAt == nil || *list[1].LastUsedAt != noon.Add(time.Minute) {
		t.Errorf("the last uses: got %v and %v, want none and %v", list[0].LastUsedAt, list[1].LastUsedAt,
			noon.Add(time.Minute))
	}
	show, err := s.Token(t.Context(), second.ID)
	if err != nil || show.ID != second.ID || show.VehicleCount.N != 2 || show.VehicleCount.All {
		t.Fatalf("the token: got %+v, %v; want %s with 2 vehicles", show, err, second.ID)
	}
	if show.CreatedAt != noon.Add(time.Minute) || show.ExpiresAt != nil || show.RevokedAt != nil {
		t.Errorf("the token: got %+v, want it of %v, without an end", show, noon.Add(time.Minute))
	}
	if got := show.Vehicles.Sorted(); !slices.Equal(got, []vehicle.ID{"A", "B"}) {
		t.Errorf("the vehicles of the token: got %v, want A and B", got)
	}
	raw := s.do(t, "GET", "/v1/tokens/"+second.ID, "")
	want := `{"id":"` + second.ID +
		`","developer":"Ada","operations":["car_driving_state","throttle_system"],"vehicle_count":2,"rate":"",` +
		`"created_at":"2026-11-20T12:01:00Z","expires_at":null,"revoked_at":null,` +
		`"last_used_at":"2026-11-20T12:01:00Z","sandbox":false,` +
		`"earlier_until":[],"last_refused_at":null,"last_refused_reason":"",` +
		`"usage":{"calls":1,"refusals":0},"vehicles":["A","B"]}` + "\n"
	if raw.body != want {
		t.Errorf("show:\n got %s\nwant %s", raw.body, want)
	}
	s.do(t, "GET", "/v1/tokens", "").lacks(t, `"vehicles"`)
}

func TestRevoke_IsFinal(t *testing.T) {
	s := start(t)
	tok := s.issue(t)
	for range 2 {
		s.clock.Advance(time.Hour)
		got, err := s.RevokeToken(t.Context(), tok.ID)
		if err != nil || got.RevokedAt == nil || *got.RevokedAt != noon.Add(time.Hour) {
			t.Fatalf("RevokeToken: got it revoked at %v, %v; want %v", got.RevokedAt, err, noon.Add(time.Hour))
		}
	}
	if did := s.store.Did(); !slices.Equal(did, []string{"Audit intended", "Create token", "Audit intended",
		"Update token"}) {
		t.Errorf("the keeper, two revocations: got %q, want one creation and one update", did)
	}
	if _, err := s.store.Tokens.Verify([]byte(tok.AccessToken), s.clock.Now()); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("a revoked token: got %v, want %v", err, access.ErrRevoked)
	}
	s.want(t, "POST", "/v1/tokens/"+tok.ID+"/revoke", "{}", http.StatusOK, "")
}

func TestGrantRefuses(t *testing.T) {
	s := start(t)
	some := s.issue(t)
	all := s.issueAs(t, access.Credential{Vehicles: access.AllVehicles(), Expires: noon.Add(time.Hour)})
	for _, tt := range []struct {
		id, body string
		status   int
		says     string
	}{
		{some.ID, ``, 400, "name the vehicles"},
		{some.ID, `{"add":["A"],"remove":["A"]}`, 400, "in both add and remove"},
		{some.ID, `{"add":"all"}`, 400, "a list of vids"},
		{some.ID, `{"add":["A-1"]}`, 400, "vid 1 of a list: a vid consists of ASCII letters and digits only"},
		{all.ID, `{"remove":["A"]}`, 409, "all vehicles"},
		{"cstid000000000000", `{"add":["A"]}`, 404, "no such token"},
	} {
		s.want(t, "POST", "/v1/tokens/"+tt.id+"/grant", tt.body, tt.status, tt.says)
	}
	s.want(t, "POST", "/v1/tokens/"+all.ID+"/grant", `{"add":["A"]}`, 200, `"vehicle_count":"all"`)
	s.clock.Advance(time.Hour)
	s.want(t, "POST", "/v1/tokens/"+all.ID+"/grant", `{"add":["A"]}`, 409, "expired")
	testkit.NoError(t, second(s.RevokeToken(t.Context(), some.ID)))
	_, err := s.GrantToken(t.Context(), some.ID, []vehicle.ID{"C"}, nil)
	refused(t, "granting to a revoked token", err, http.StatusConflict, "revoked")
}

func TestChangeToken(t *testing.T) {
	s := start(t)
	tok := s.issue(t)
	end := noon.Add(10 * 24 * time.Hour)
	got, err := s.ChangeToken(t.Context(), tok.ID, access.Change{Rate: &access.Rate{Calls: 10, Window: time.Minute},
		Expires: &end})
	if err != nil || got.Rate != "10/min" || got.ExpiresAt == nil || !got.ExpiresAt.Equal(end) ||
		got.VehicleCount.N != 2 {
		t.Fatalf("got %+v, %v; want rate 10/min, expiry %v, 2 vehicles", got, err, end)
	}
	if e := newest(t, s.Client, 1)[0]; e.Action != "token.change" || e.Object != tok.ID ||
		e.Detail != "expires 2026-11-30T12:00:00Z; rate 10/min" {
		t.Errorf("the audit: got %+v, want token.change of %s with its expiry and rate", e, tok.ID)
	}
	s.clock.Advance(11 * 24 * time.Hour) // the token has expired, and becomes valid again
	for _, tt := range []struct{ body, want string }{
		{`{"expires_at":null}`,
			`"vehicle_count":2,"rate":"10/min","created_at":"2026-11-20T12:00:00Z","expires_at":null`},
		{`{"rate":""}`, `"rate":""`},
		{`{"vehicles":"all"}`, `"vehicle_count":"all"`},
		{`{"vehicles":["C"]}`, `"vehicle_count":1`},
	} {
		s.want(t, "PATCH", "/v1/tokens/"+tok.ID, tt.body, http.StatusOK, tt.want)
	}
	g, err := s.store.Tokens.Verify([]byte(tok.AccessToken), s.clock.Now())
	if err != nil || !g.Vehicles.Include("C") || g.Vehicles.Include("A") {
		t.Errorf("got %+v, %v; want a grant with C and without A", g, err)
	}
}

func TestChangeTokenRefuses(t *testing.T) {
	s := start(t)
	tok := s.issue(t)
	sandbox := s.issueAs(t, access.Credential{Kind: access.SandboxKind})
	testkit.NoError(t, second(s.Forget(t.Context(), "Gone")))
	for _, tt := range []struct {
		id, body string
		status   int
		says     string
	}{
		{tok.ID, ``, 400, "nothing to change"},
		{tok.ID, `{"rate":"fast"}`, 400, "a rate is"},
		{tok.ID, `{"rate":5}`, 400, "rate has the wrong type"},
		{tok.ID, `{"strict":true}`, 400, "this call takes vehicles, expires_at, rate"},
		{tok.ID, `{"expires_at":"2026-11-20T12:00:00Z"}`, 400, "cannot expire in the past: revoke it"},
		{tok.ID, `{"vehicles":["Gone"]}`, 409, "forgotten"},
		{sandbox.ID, `{"vehicles":"all"}`, 400, "the reserved vehicles and no others"},
		{"cstid000000000000", `{"rate":""}`, 404, "no such token"},
	} {
		s.want(t, "PATCH", "/v1/tokens/"+tt.id, tt.body, tt.status, tt.says)
	}
	testkit.NoError(t, second(s.RevokeToken(t.Context(), tok.ID)))
	s.want(t, "PATCH", "/v1/tokens/"+tok.ID, `{"rate":""}`, 409, "revoked")
	if show, err := s.Token(t.Context(), tok.ID); err != nil || show.VehicleCount.N != 2 || show.Rate != "" {
		t.Errorf("the token after refused changes: got %+v, %v; want 2 vehicles, no rate", show, err)
	}
}

// A token of an earlier version may name more.
func TestTooManyVehicles(t *testing.T) {
	s := start(t)
	ids := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `,"C%0249d"`, i)
		}
		return "[" + text.String()[1:] + "]"
	}
	s.want(t, "POST", "/v1/tokens", `{"developer":"Ada","vehicles":`+ids(10_001)+`}`, 400,
		"a token names at most 10000 vehicles, not 10001: let it cover all (--vehicles all), or use several tokens")
	s.want(t, "POST", "/v1/sources", `{"name":"gateway","vehicles":`+ids(10_001)+`}`, 400,
		"a source names at most 10000 vehicles, not 10001: let it cover all (--vehicles all), or use several sources")
	s.want(t, "POST", "/v1/sources", `{"name":"gateway","vehicles":`+ids(10_000)+`}`, 201, `"name":"gateway"`)
	s.want(t, "PATCH", "/v1/sources/gateway", `{"vehicles":`+ids(10_001)+`}`, 400, "at most 10000 vehicles")
	tok := s.issueAs(t, access.Credential{Vehicles: access.VehicleSet("A")})
	s.want(t, "POST", "/v1/tokens/"+tok.ID+"/grant", `{"add":`+ids(10_000)+`}`, 409, "not 10001")
	s.want(t, "POST", "/v1/tokens/"+tok.ID+"/grant", `{"add":`+ids(10_000)+`,"remove":["A"]}`, 200, `"vehicle_count":10000`)

	g, _ := s.store.Tokens.Get(tok.ID)
	old := g.Credential
	old.Vehicles = old.Vehicles.With("A", "B")
	s.store.Tokens.Put(old)
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "", "", 200, `"vehicle_count":10002`},
		{"PATCH", "", `{"rate":"5/s"}`, 200, `"rate":"5/s"`},
		{"POST", "/grant", `{"add":["C"]}`, 409, "at most 10000 vehicles, not 10003"},
		{"POST", "/grant", `{"remove":["A"]}`, 200, `"vehicle_count":10001`},
		{"POST", "/revoke", "", 200, `"revoked_at":"20`},
	} {
		s.want(t, tt.method, "/v1/tokens/"+tok.ID+tt.path, tt.body, tt.status, tt.says)
	}
}
