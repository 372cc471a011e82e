package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/test/testkit"
)

func TestLogin_IsAllWithoutASession(t *testing.T) {
	f := newFixture(t)
	for path, status := range map[string]int{"/": 401, "/vehicles": 401, "/vehicles/A": 401, "/tokens": 401,
		"/sources": 401, "/operators": 401, "/audit": 401, "/nothing": 404, "/s/x/nothing": 404, "/adminkey": 404} {
		a := f.get(path)
		f.want(a, status, "<h1>Log in</h1>", `name="next" value="`+strings.TrimPrefix(path, "/s/x")+`"`)
		if (a.header.Get("WWW-Authenticate") != "") != (status == 401) || strings.Contains(a.body, "<nav") {
			t.Errorf("%s: got the header %v and %s, want the login alone", path, a.header, a.body)
		}
	}
	for _, path := range []string{"/vehicles", "/tokens", "/tokens/x/revoke", "/sources", "/operators", "/adminkey",
		"/vehicles/A/forget", "/vehicles/A/allow", "/logout"} {
		f.want(f.post(path, "name", "x"), http.StatusUnauthorized)
	}
	f.want(f.get("/live/fleet"), http.StatusUnauthorized)
	if did := f.did(); did != "" {
		t.Errorf("requests without a session: got %s, want nothing done", did)
	}
	if n := f.known.Swap(0); n != 0 {
		t.Errorf("requests without a session: got %d known, want 0", n)
	}

	token, _ := access.NewSecret(access.TokenKind)
	for _, key := range []string{"", "x", token, f.key + "x", f.key[:39]} {
		a := f.post("/login", "key", key)
		f.want(a, http.StatusForbidden, "not a key of this service")
		if a.header.Get("Set-Cookie") != "" || len(key) > 10 && strings.Contains(a.body, key) {
			t.Errorf("the key %.6s…: got a cookie, or the key again, want neither", key)
		}
	}
	f.want(f.get("/csa_0"), http.StatusNotFound, `name="next" value="/"`)
	f.want(f.post("/login", "key", "csa_x", "next", "/tokens"), http.StatusForbidden, `name="next" value="/tokens"`)
	f.want(f.post("/login", "key", "csa_x", "next", "//evil.example"), http.StatusForbidden, `name="next" value="/"`)
	for next, want := range map[string]string{
		"/tokens": "/tokens", "/vehicles/NHeN4": "/vehicles/NHeN4", "": "/", "//evil.example": "/",
		"https://evil.example": "/",
		`/\evil.example`:       "/", "/%2fevil": "/", "tokens": "/", "/a?b": "/",
	} {
		if a := f.post("/login", "key", " "+f.key+"\n", "next", next); a.status != http.StatusSeeOther ||
			a.leadsTo() != want {
			t.Errorf("next %q: got %d to %q, want 303 to %s", next, a.status, a.header.Get("Location"), want)
		}
	}
	f.logIn(f.key)
	for _, path := range []string{"/", "/audit", "/nothing"} {
		f.known.Swap(0)
		f.get(path)
		if n := f.known.Swap(0); n != 1 {
			t.Errorf("%s with a session: got it known %d times, want once", path, n)
		}
	}
	c := f.read(f.anotherBrowser().PostForm(f.server.URL+"/login",
		map[string][]string{"key": {f.key}})).header.Get("Set-Cookie")
	for _, attribute := range []string{"carstate-session=", "Path=/s/", "HttpOnly", "SameSite=Strict", "Max-Age="} {
		if !strings.Contains(c, attribute) {
			t.Errorf("the cookie: got %.20s…, want it with %s", c, attribute)
		}
	}
	if strings.Contains(f.log.String(), f.key[4:16]) {
		t.Error("the log: got the key, want it without")
	}
}

// The browser's Origin says that TLS is used.
func TestCookieBehindAProxy(t *testing.T) {
	f := newFixture(t)
	send := func(method, path, cookie string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, f.server.URL+path,
			strings.NewReader(url.Values{"key": {f.key}}.Encode()))
		testkit.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", "https://carstate.example")
		if cookie != "" {
			req.Header.Set("Cookie", cookie)
		}
		resp, err := f.browser.Do(req)
		testkit.NoError(t, err)
		resp.Body.Close()
		return resp
	}
	begun := send("POST", "/login", "")
	c, root := begun.Header.Get("Set-Cookie"), begun.Header.Get("Location")
	if !strings.HasPrefix(c, "__Host-carstate-session=") || !strings.Contains(c, "; Secure") {
		t.Fatalf("the cookie: got %.30s…, want __Host-carstate-session=…; Secure", c)
	}
	mine, _, _ := strings.Cut(c, ";")
	// Another server on the host can set the cookie without the prefix __Host-.
	if resp := send("GET", root+"/tokens", "carstate-session=x; "+mine); resp.StatusCode != http.StatusOK {
		t.Errorf("the session beside another cookie: got status %d, want 200", resp.StatusCode)
	}
	if c := send("POST", root+"/logout", mine).Header.Get("Set-Cookie"); !strings.HasPrefix(c,
		"__Host-carstate-session=;") {
		t.Errorf("the logout: got the cookie %.30s…, want __Host-carstate-session=;", c)
	}
	if resp := send("GET", root+"/tokens", mine); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the logout: got status %d, want 401", resp.StatusCode)
	}
}

// No other server on the host may receive the plain cookie.
func TestSessionNeedsRootAndCookie(t *testing.T) {
	for _, secure := range []bool{false, true} {
		f := newFixture(t, func(c *console.Config) { c.Secure = secure })
		begin := func() (root string, cookie *http.Cookie) {
			t.Helper()
			resp, err := f.anotherBrowser().PostForm(f.server.URL+"/login", url.Values{"key": {f.key}})
			testkit.NoError(t, err)
			resp.Body.Close()
			cookies := resp.Cookies()
			if len(cookies) != 1 {
				t.Fatalf("the login: got %d cookies, want 1", len(cookies))
			}
			return resp.Header.Get("Location"), cookies[0]
		}
		root, cookie := begin()
		another, its := begin()
		if len(root) != len("/s/")+26 || root == another || cookie.Value == its.Value ||
			strings.Contains(root, cookie.Value) {
			t.Errorf("two sessions: got the roots %q and %q, want two of 26 letters without a cookie", root, another)
		}
		if want := map[bool]string{false: root, true: "/"}[secure]; cookie.Path != want ||
			cookie.Secure != secure || strings.HasPrefix(cookie.Name, "__Host-") != secure || cookie.Domain != "" {
			t.Errorf("secure %v: got the cookie %s, want the path %s", secure, cookie, want)
		}
		for path, status := range map[string]int{
			"/tokens": 401, another + "/tokens": 401, "/s/x/tokens": 401, root + "x/tokens": 401,
			root + "/tokens": 200, root: 200,
		} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", f.server.URL+path, nil)
			testkit.NoError(t, err)
			// A page on another port has set cookies of both names.
			req.AddCookie(&http.Cookie{Name: "__Host-carstate-session", Value: "other"})
			req.AddCookie(&http.Cookie{Name: "carstate-session", Value: "other"})
			req.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
			if a := f.read(f.anotherBrowser().Do(req)); a.status != status {
				t.Errorf("secure %v, %s: got status %d, want %d", secure, path, a.status, status)
			}
		}
		withoutCookie := f.read(f.anotherBrowser().Get(f.server.URL + root + "/tokens"))
		f.want(withoutCookie, http.StatusUnauthorized, `name="next" value="/tokens"`)
	}
}

func TestSessionEnds(t *testing.T) {
	f := loggedIn(t)
	for range 11 {
		f.clock.Advance(59 * time.Minute)
		f.want(f.get("/tokens"), http.StatusOK)
	}
	f.clock.Advance(59 * time.Minute) // the twelfth hour has not ended
	f.want(f.get("/tokens"), http.StatusOK)
	f.clock.Advance(13 * time.Minute)
	f.want(f.get("/tokens"), http.StatusUnauthorized)

	f.logIn(f.key)
	f.clock.Advance(time.Hour)
	f.want(f.get("/tokens"), http.StatusUnauthorized)

	f.logIn(f.key)
	f.want(f.read(f.browser.Get(f.server.URL+f.roots[f.browser]+"/login")), http.StatusSeeOther)
	f.want(f.post("/logout"), http.StatusSeeOther)
	f.want(f.get("/tokens"), http.StatusUnauthorized)

	ada, key, err := access.New(access.Credential{Kind: access.OperatorKind, Name: "ada"}, noon)
	testkit.NoError(t, err)
	f.store.Operators.Put(ada)
	f.logIn(key)
	f.want(f.get("/tokens"), http.StatusOK, "<span>ada</span>")
	removed := ada
	removed.Ended = noon
	f.store.Operators.Put(removed)
	f.want(f.get("/tokens"), http.StatusUnauthorized)
	f.store.Operators.Put(ada)
	f.want(f.get("/tokens"), http.StatusUnauthorized)

	f.logIn(f.key)
	f.want(f.post("/adminkey"), http.StatusOK, "Replace the admin key?")
	f.want(f.post("/adminkey", "sure", "yes"), http.StatusOK, "The admin key is replaced")
	f.want(f.get("/tokens"), http.StatusUnauthorized)
}

func TestSessionsAreBounded(t *testing.T) {
	f := newFixture(t)
	ada, key, err := access.New(access.Credential{Kind: access.OperatorKind, Name: "ada"}, noon)
	testkit.NoError(t, err)
	f.store.Operators.Put(ada)
	f.logIn(f.key)
	admin := f.browser
	f.browser = f.anotherBrowser()
	f.logIn(key)
	first := f.browser
	const most = 16 // of an operator
	for range most {
		f.clock.Advance(time.Second)
		f.browser = f.anotherBrowser()
		f.logIn(key)
	}
	if n := testkit.Metric(t, f.metrics, "carstate_console_sessions"); n != most+1 {
		t.Errorf("got %v sessions, want %d of ada and one", n, most)
	}
	f.browser = first
	f.want(f.get("/tokens"), http.StatusUnauthorized)
	f.browser = admin
	f.clock.Advance(time.Second)
	f.want(f.get("/tokens"), http.StatusOK)
}

func TestForm_IsTakenOnce(t *testing.T) {
	f := loggedIn(t)
	for _, form := range [][]string{
		{"/tokens", "developer", "Ada", "operation", "throttle_system", "scope", "all", "days", "90"},
		{"/sources", "name", "gateway-1", "scope", "all"},
		{"/operators", "name", "ada"},
	} {
		fields := append(form[1:], "mark", form[0])
		f.want(f.post(form[0], fields...), http.StatusCreated, "shown this once")
		f.want(f.post(form[0], fields...), http.StatusConflict, "sent before")
	}
	if did := f.did(); did != "admin token.issue, admin source.add, admin operator.add" {
		t.Errorf("the audit: got %s, want token.issue, source.add, operator.add", did)
	}
	// The form is of an ended session.
	f.post("/logout")
	f.logIn(f.key)
	f.want(f.post("/tokens", "developer", "Ada", "operation", "throttle_system", "scope", "all", "days", "90", "mark",
		"/tokens"), http.StatusConflict, "sent before")
}
