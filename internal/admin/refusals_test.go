package admin_test

import (
	"context"
	"iter"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestBadRequests(t *testing.T) {
	s := start(t)
	const ok = `"developer":"Ada","vehicles":"all"`
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/tokens", ``, 400, `vehicles are missing: \"all\", or a list`},
		{"POST", "/v1/tokens", `{}`, 400, "vehicles are missing"},
		{"POST", "/v1/tokens", `{"vehicles":"all"}`, 400, "a developer's name"},
		{"POST", "/v1/tokens", `{"developer":"Ada","vehicles":null}`, 400, "vehicles has the wrong type"},
		{"POST", "/v1/tokens", `{"developer":"Ada","vehicles":"some"}`, 400, "or a list of vids"},
		{"POST", "/v1/tokens", `{"developer":"Ada","vehicles":7}`, 400, "a list of vids is needed"},
		{"POST", "/v1/tokens", `{"developer":"Ada","vehicles":["A",7]}`, 400, "a list of vids is needed"},
		{"POST", "/v1/tokens", `{"developer":"Ada","vehicles":["A",""]}`, 400,
			"vid 2 of a list: a vid must not be empty"},
		{"POST", "/v1/tokens", `{"developer":"Ada","vehicles":["` + strings.Repeat("A", 257) + `"]}`, 400,
			"at most 256 characters"},
		{"POST", "/v1/tokens", `{"developer":"Ada\n","vehicles":"all"}`, 400, "printable"},
		{"POST", "/v1/tokens", `{` + ok + `,"operations":[]}`, 400, "at least one operation"},
		{"POST", "/v1/tokens", `{` + ok + `,"operations":["cst_oops"]}`, 400, "unknown operation"},
		{"POST", "/v1/tokens", `{` + ok + `,"operations":"throttle_system"}`, 400, "operations has the wrong type"},
		{"POST", "/v1/tokens", `{` + ok + `,"rate":"fast"}`, 400, "a rate is a whole number"},
		{"POST", "/v1/tokens", `{` + ok + `,"rate":10}`, 400, "rate has the wrong type"},
		{"POST", "/v1/tokens", `{` + ok + `,"expires_at":"tomorrow"}`, 400, "expires_at is null for never"},
		{"POST", "/v1/tokens", `{` + ok + `,"expires_at":7}`, 400, "expires_at is null for never"},
		{"POST", "/v1/tokens", `{` + ok + `,"expires_at":"2026-11-20T12:00:00Z"}`, 400, "before it is issued"},
		{"POST", "/v1/tokens", `{` + ok + `,"Rate":"1/s"}`, 400,
			"this call takes developer, operations, vehicles, expires_at, rate"},
		{"POST", "/v1/tokens", `{` + ok + `,"developer":"Bo"}`, 400, "contains a member twice"},
		{"POST", "/v1/tokens", `{` + ok + `} {}`, 400, "not valid JSON, at byte 37"},
		{"POST", "/v1/tokens", `{` + ok, 400, "not valid JSON"},
		{"POST", "/v1/tokens", "{\"developer\":\"\xff\",\"vehicles\":\"all\"}", 400, "not valid JSON"},
		{"POST", "/v1/tokens", `[1]`, 400, "must be a JSON object"},
		{"POST", "/v1/tokens/x/revoke", `{"why":"because"}`, 400, "this call takes no members"},
		{"POST", "/v1/sources", `{"name":"a b","vehicles":"all"}`, 400, "a source's name"},
		{"POST", "/v1/sources", `{"name":"a","vehicles":[]}`, 400, "a source needs vehicles"},
		{"POST", "/v1/sources", `{"name":"a"}`, 400, "vehicles are missing"},
		{"POST", "/v1/sources", `{"name":"a","vehicles":"all","expires_at":"2026-11-20T12:00:00Z"}`, 400,
			"before it is added"},
		{"GET", "/v1/tokens/cstid000000000000", ``, 404, "no such token"},
		{"POST", "/v1/tokens/cstid000000000000/revoke", ``, 404, "no such token"},
		{"GET", "/v1/sources/nobody", ``, 404, "no such source"},
		{"DELETE", "/v1/sources/nobody", ``, 404, "no such source"},
	} {
		got := s.want(t, tt.method, tt.path, tt.body, tt.status, tt.says)
		if !strings.HasPrefix(got.body, `{"error":"`) || strings.Contains(got.body, "oops") ||
			strings.Contains(got.body, "because") || strings.Count(got.body, "\n") != 1 {
			t.Errorf("%s %s: got %s, want an error of one line without the input", tt.method, tt.path, got.body)
		}
	}
	if did := s.store.Did(); len(did) != 0 {
		t.Errorf("the keeper: got %q of refused calls, want nothing", did)
	}
}

func TestBodyTooLarge(t *testing.T) {
	s := start(t)
	s.want(t, "POST", "/v1/tokens", `{"developer":"Ada","vehicles":[`+strings.Repeat(" ", 64<<20)+`"A"]}`,
		http.StatusRequestEntityTooLarge, "64 MiB")
}

func TestBody_MustBeJSON(t *testing.T) {
	s := start(t)
	for value, status := range map[string]int{
		"": 415, "application/x-www-form-urlencoded": 415, "text/plain": 415, "application/jsonx": 415,
		"application/json": 400, "Application/JSON; charset=utf-8": 400,
	} {
		s.want(t, "POST", "/v1/tokens", `{}`, status, "", header("Content-Type", value))
	}
}

func TestWrongKeys(t *testing.T) {
	s := start(t)
	key := func(value string) func(*http.Request) { return header("Authorization", value) }
	another, _ := access.NewSecret(access.AdminKind)
	token := s.issue(t).AccessToken
	wrong := []string{"", "Bearer", "Bearer ", "Bearer " + another, "Bearer " + token, "Basic " + s.Key, s.Key,
		"Bearer  " + s.Key, "Bearer " + s.Key + "x", "Bearer " + s.Key[:39]}
	s.store.Did()
	for _, value := range wrong {
		got := s.want(t, "POST", "/v1/tokens", `{"developer":"Eve","vehicles":"all"}`, 401, "admin key", key(value))
		challenge := `Bearer realm="carstate-admin"`
		if strings.HasPrefix(value, "Bearer ") && value != "Bearer " {
			challenge += `, error="invalid_token"`
		}
		if got.header.Get("WWW-Authenticate") != challenge {
			t.Errorf("the key %q: got the header %v, want %s", value, got.header, challenge)
		}
	}
	s.want(t, "GET", "/v1/tokens", "", 200, "", key("bearer "+s.Key))
	if did := s.store.Did(); len(did) != 0 {
		t.Errorf("the keeper: got %q of wrong keys, want nothing", did)
	}
}

// Names in a path are "x".
func calls(t *testing.T) iter.Seq2[string, string] {
	t.Helper()
	source, err := os.ReadFile("routes.go")
	testkit.NoError(t, err)
	found := regexp.MustCompile(`"([A-Z]+) (/v1/[^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(found) < 20 {
		t.Errorf("routes.go: got %d calls, want 20 or more", len(found))
	}
	return func(yield func(method, path string) bool) {
		for _, call := range found {
			if !yield(call[1], regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(call[2], "x")) {
				return
			}
		}
	}
}

func TestEveryCallNeedsTheKey(t *testing.T) {
	s := startOps(t, func(c *ops.Config) {
		c.State = func(context.Context, vehicle.ID) (vehicle.State, bool, error) { panic("a vehicle is read") }
	})
	token := s.issue(t).AccessToken
	s.store.Did()
	for method, path := range calls(t) {
		for _, key := range []string{"", "Bearer " + token} {
			s.clock.Advance(time.Second)
			s.want(t, method, path, "", 401, "", header("Authorization", key))
		}
	}
	if did := s.store.Did(); len(did) != 0 {
		t.Errorf("the keeper: got %q of calls without a key, want nothing", did)
	}
}

func TestPathsAndMethods(t *testing.T) {
	s := start(t)
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""},
		{"GET", "/v1", 404, ""},
		{"GET", "/v1/tokens/", 404, ""},
		{"GET", "//v1/tokens", 404, ""},
		{"GET", "/v1/./tokens", 404, ""},
		{"GET", "/v1/x/../tokens", 404, ""},
		{"GET", "/V1/tokens", 404, ""},
		{"GET", "/v1/tokens/a/b", 404, ""},
		{"GET", "/debug/pprof/", 404, ""},
		{"GET", "/s/x//", 404, ""},
		{"GET", "/s//evil.example/", 404, ""},
		{"PUT", "/v1/tokens", 405, "GET, POST, HEAD"},
		{"GET", "/v1/tokens/x/revoke", 405, "POST"},
		{"POST", "/v1/sources/x", 405, "DELETE, GET, PATCH, HEAD"},
		{"OPTIONS", "/v1/tokens", 405, "GET, POST, HEAD"},
		{"POST", "/healthz", 405, "GET, HEAD"},
		{"HEAD", "/v1/tokens", 200, ""},
		{"HEAD", "/healthz", 200, ""},
		{"GET", "/s/x/tokens/?a=b", 303, ""},
	} {
		got := s.do(t, tt.method, tt.path, "")
		to := map[bool]string{true: "/s/x/tokens?a=b"}[tt.status == 303]
		if got.status != tt.status || got.header.Get("Allow") != tt.allow || got.header.Get("Location") != to {
			t.Errorf("%s %s: got %d %v, want %d, Allow %q, Location %q",
				tt.method, tt.path, got.status, got.header, tt.status, tt.allow, to)
		}
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s %s: got the header %s, want none for other origins", tt.method, tt.path, name)
			}
		}
	}
}

func TestGuard_AcceptsItsHostsOnly(t *testing.T) {
	s := start(t, func(c *admin.Config) { c.Hosts = []string{"Cars.example"} })
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8082": 200, "localhost.": 200, "127.0.0.1": 200, "127.0.0.1:80": 200,
		"10.1.2.3:8082": 200,
		"[::1]":         200, "[::1]:8082": 200, "cars.example": 200, "cars.example:8082": 200, "CARS.EXAMPLE.": 200,
		"evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"cars.example.evil.example": 421,
		"xcars.example":             421, "127.1": 421, "2130706433": 421, "0x7f000001": 421, ":8082": 421,
		"fe80::1%evil.example": 421, "::1%lo": 421,
	} {
		for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": status,
			"/v1/tokens": status} {
			if got := s.do(t, "GET", path, "", func(r *http.Request) { r.Host = host }); got.status != status {
				t.Errorf("Host %s, %s: got %d %s, want %d", host, path, got.status, got.body, status)
			}
		}
	}
}

func TestGuard_AcceptsNoHost(t *testing.T) {
	s := start(t)
	resp, err := http.ReadResponse(s.dial(t, "GET /healthz HTTP/1.0\r\n\r\n").in, nil)
	testkit.NoError(t, err)
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("GET /healthz without a host: got status %d, want 200", resp.StatusCode)
	}
}

func TestOtherOrigins(t *testing.T) {
	s := start(t)
	for _, tt := range []struct {
		header, value string
		status        int
	}{
		{"Sec-Fetch-Site", "cross-site", 403},
		{"Sec-Fetch-Site", "same-site", 403},
		{"Origin", "https://evil.example", 403},
		{"Origin", "null", 403},
		{"Sec-Fetch-Site", "same-origin", 400},
		{"Sec-Fetch-Site", "none", 400},
		{"Origin", s.URL, 400},
	} {
		s.want(t, "POST", "/v1/tokens", `{}`, tt.status, `{"error":"`, header(tt.header, tt.value))
	}
}

// Such a page could not read the response, but on the same host its request carries the cookie, and
// may cost work or open a stream. Following a link is allowed.
func TestOtherOriginsRead(t *testing.T) {
	s := start(t)
	for _, tt := range []struct {
		site, mode, dest string
		path             string
		status           int
	}{
		{"same-site", "cors", "empty", "/v1/tokens", 403},
		{"same-site", "no-cors", "image", "/v1/tokens", 403},
		{"cross-site", "no-cors", "script", "/v1/tokens", 403},
		{"same-site", "navigate", "iframe", "/v1/tokens", 403},
		{"same-site", "navigate", "document", "/v1/tokens", 200},
		{"cross-site", "navigate", "document", "/v1/tokens", 200},
		{"same-origin", "cors", "empty", "/v1/tokens", 200},
		{"none", "navigate", "document", "/v1/tokens", 200},
		{"cross-site", "cors", "empty", "/healthz", 200},
	} {
		s.want(t, "GET", tt.path, "", tt.status, "", header("Sec-Fetch-Site", tt.site), header("Sec-Fetch-Mode", tt.mode),
			header("Sec-Fetch-Dest", tt.dest))
	}
}
