package console_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestFooter_NamesVersionAndDocs(t *testing.T) {
	f := newFixture(t, func(c *console.Config) { c.Version, c.DocsURL = "v1.2.3", "http://127.0.0.1:8080/" })
	f.lacks("a footer before the login", f.get("/login"), "<footer")
	f.logIn(f.key)
	f.want(f.get("/tokens"), http.StatusOK, "<footer", "v1.2.3", `href="http://127.0.0.1:8080/"`)
	f = newFixture(t)
	f.logIn(f.key)
	f.lacks("a link to no documentation", f.get("/tokens"), "Documentation")
}

func TestNotFound_IsNoAlert(t *testing.T) {
	f := loggedIn(t)
	for _, a := range []answer{f.get("/nothing"), f.post("/vehicles/a-b/allow"), f.post("/vehicles/a-b/forget")} {
		f.want(a, http.StatusNotFound, "There is nothing here", "The navigation above has all pages.")
		f.lacks("an alert", a, `role="alert"`)
	}
}

func TestTokenForm(t *testing.T) {
	f := loggedIn(t)
	form := url.Values{"developer": {" Ada <b>Lovelace</b> "}, "operation": {"car_driving_state", "throttle_system"},
		"scope": {"list"}, "vehicles": {"A, B\r\nC"}, "days": {"30"}, "rate": {"10/s"}, "mark": {"1"}}
	a := f.read(f.browser.PostForm(f.at("/tokens"), form))
	f.want(a, http.StatusCreated, "cst_", "Ada &lt;b&gt;Lovelace&lt;/b&gt;",
		"curl -G http://127.0.0.1:8080/api/ic/if_dt_tflow_car_driving_state")
	list := f.store.Tokens.All()
	if len(list) != 1 || list[0].Vehicles.Len() != 3 || list[0].Rate.String() != "10/s" ||
		!list[0].Expires.Equal(noon.Add(30*24*time.Hour)) || list[0].Operations != access.AllOperations {
		t.Fatalf("got token %+v, want what the form says", list[0].Credential)
	}
	secret := a.body[strings.Index(a.body, "cst_"):][:40]
	a = f.get("/tokens")
	f.want(a, http.StatusOK, list[0].Name, "A, B, C", "10/s", "Ada &lt;b&gt;Lovelace&lt;/b&gt;")
	if strings.Contains(a.body, secret) || strings.Contains(f.log.String(), secret) {
		t.Error("the page and the log: got the secret again, want it once")
	}

	for what, c := range map[string]struct{ field, value, says string }{
		"no operation": {"operation", "", "unknown operation"},
		"no vehicle":   {"vehicles", " ", "name the vehicles, or choose all"},
		"no vid": {"vehicles", "A b-c",
			"vehicle 2 of the list: a vid consists of ASCII letters and digits only"},
		"no scope": {"scope", "some", "choose which vehicles the token sees"},
		"a rate":   {"rate", "fast", "a rate is a whole number"},
		"an end":   {"days", "-1", "choose when it expires"},
	} {
		wrong := maps.Clone(form)
		wrong.Set(c.field, c.value)
		wrong.Set("mark", what)
		a := f.read(f.browser.PostForm(f.at("/tokens"), wrong))
		f.want(a, http.StatusBadRequest, c.says, `role="alert"`, `value=" Ada &lt;b&gt;Lovelace&lt;/b&gt; "`)
	}
	if n := f.store.Tokens.Len(); n != 1 {
		t.Errorf("the tokens after wrong forms: got %d, want 1", n)
	}
	// Otherwise a second try could grant more than the first.
	a = f.post("/tokens", "developer", "Bo", "operation", "throttle_system", "scope", "list", "vehicles", "A", "days",
		"7", "rate", "no", "mark", "narrow")
	f.want(a, http.StatusBadRequest, `value="throttle_system" checked`, `value="7" selected`,
		`value="list" required checked`)
	f.lacks("the form was reset", a, `value="car_driving_state" checked`, `value="90" selected`)
	f.want(f.get("/tokens"), http.StatusOK, `value="throttle_system" checked`, `value="car_driving_state" checked`)
	a = f.post("/tokens", "developer", "Bo", "operation", "throttle_system", "scope", "sandbox", "days", "never",
		"mark", "sandbox")
	f.want(a, http.StatusCreated, "cstest_")
	// A secret in the wrong field is not shown again.
	a = f.post("/tokens", "developer", secret, "operation", "throttle_system", "scope", "all", "days", "7", "mark",
		"misplaced")
	f.want(a, http.StatusBadRequest, "a name must not hold one")
	f.lacks("a form was filled in with a secret", a, secret)
	f.want(f.post("/operators", "mark", "x", "name", strings.Repeat("A", 17<<10)), http.StatusRequestEntityTooLarge,
		"the form is too long")
	f.want(f.post("/tokens", "mark", "x", "vehicles", strings.Repeat("A ", 1<<20)), http.StatusRequestEntityTooLarge,
		"the form is too long")
}

func TestTokenOperations(t *testing.T) {
	f := loggedIn(t)
	tok, _ := f.create(access.Credential{Vehicles: access.AllVehicles(), Expires: noon.Add(48 * time.Hour)})
	f.want(f.get("/tokens"), http.StatusOK, "expiring", "1 token expires", "in 2 d", "never")
	f.want(f.post("/tokens/"+tok.Name+"/rotate", "mark", "1", "overlap", "24"), http.StatusCreated, "cst_",
		"The old one stays valid for another 24 h.")
	f.want(f.get("/tokens/"+tok.Name), http.StatusOK, "valid until 2026-11-21 12:00 UTC")
	a := f.post("/tokens/"+tok.Name+"/rotate", "mark", "2", "overlap", "0")
	f.want(a, http.StatusOK, "End the old secret of Ada at once?", `name="mark" value="2"`,
		`name="overlap" value="0"`, `name="sure" value="yes"`)
	f.want(f.post("/tokens/"+tok.Name+"/rotate", "mark", "2", "overlap", "0", "sure", "yes"), http.StatusCreated,
		"The old one has ended.")
	f.want(f.post("/tokens/"+tok.Name+"/rotate", "mark", "4", "overlap", "24"), http.StatusCreated,
		"The old one stays valid for another 24 h.")
	for i, overlap := range []string{"", "x", "-1", "99999", "9999999999999999999"} {
		f.want(f.post("/tokens/"+tok.Name+"/rotate", "mark", fmt.Sprint(10+i), "overlap", overlap),
			http.StatusBadRequest, "choose how long the old secret stays valid")
	}
	f.want(f.post("/tokens/nobody/rotate", "mark", "3", "overlap", "0"), http.StatusNotFound, "there is no such token")
	f.did()
	f.want(f.post("/tokens/"+tok.Name+"/revoke"), http.StatusOK, "Revoke the token of Ada?", "This cannot be undone.",
		"No: go back")
	if did := f.did(); did != "" {
		t.Errorf("a revocation before anybody was sure: got %s, want nothing done", did)
	}
	f.store.Fail("Update token", errDisk)
	f.want(f.post("/tokens/"+tok.Name+"/revoke", "sure", "yes"), http.StatusServiceUnavailable,
		"could not be confirmed that this was stored")
	f.want(f.get("/tokens"), http.StatusOK, "expiring")
	f.store.Fail("Update token", nil)
	f.want(f.post("/tokens/"+tok.Name+"/revoke", "sure", "yes"), http.StatusSeeOther)
	f.want(f.get("/tokens"), http.StatusOK, "The token of Ada is revoked", "revoked")
	f.lacks("an old secret of a revoked token is said to count", f.get("/tokens/"+tok.Name), "valid until")
	f.lacks("the notice is shown twice, or a revoked token can be rotated", f.get("/tokens/"+tok.Name), "is revoked:",
		"/rotate")
}

func TestTokenIsEdited(t *testing.T) {
	f := loggedIn(t)
	tok, secret := f.create(access.Credential{Vehicles: access.VehicleSet("A", "B"),
		Rate: access.Rate{Calls: 5, Window: time.Second}})
	page := "/tokens/" + tok.Name
	f.want(f.get("/tokens"), http.StatusOK, f.roots[f.browser]+page+`">Ada</a>`)
	f.want(f.get(page), http.StatusOK, "<h1>Ada</h1>", "A, B",
		`id="rate" name="rate" autocomplete="off" placeholder="no limit" value="5/s"`, "as it is: never",
		page+"/revoke")
	f.want(f.get("/tokens/nobody"), http.StatusNotFound, "there is no such token")
	now := func() access.Credential {
		t.Helper()
		g, err := f.store.Tokens.Verify([]byte(secret), f.clock.Now())
		testkit.NoError(t, err)
		return g.Credential
	}
	names := func() string { v := now().Vehicles; return fmt.Sprint(v.All(), v.Sorted()) }

	f.want(f.post(page+"/grant", "add", " C, D ", "remove", "A"), http.StatusSeeOther)
	f.want(f.get(page), http.StatusOK, "The vehicles of the token are changed.", "B, C, D")
	for says, fields := range map[string][]string{
		"name the vehicles to add or to remove": {"add", " ", "remove", ""},
		"vehicle 1 of the list":                 {"add", "a-b"},
		"choose all vehicles, or list":          {"all", "yes", "add", "X"},
	} {
		f.want(f.post(page+"/grant", fields...), http.StatusBadRequest, says, `role="alert"`, "<h1>Ada</h1>")
	}
	f.want(f.post(page+"/grant", "all", "yes", "add", ""), http.StatusOK, "Let the token of Ada see all vehicles?",
		`name="all" value="yes"`)
	if got := names(); got != "false [B C D]" {
		t.Errorf("a grant before anybody was sure: got %s, want false [B C D]", got)
	}
	f.want(f.post(page+"/grant", "all", "yes", "sure", "yes"), http.StatusSeeOther)
	f.want(f.get(page), http.StatusOK, "all vehicles", "In place of all vehicles, these alone")
	f.want(f.post(page+"/grant", "only", ""), http.StatusBadRequest, "name the vehicles")
	f.want(f.post(page+"/grant", "only", "E"), http.StatusSeeOther)
	if got := names(); got != "false [E]" {
		t.Errorf("the vehicles of the token: got %s, want false [E]", got)
	}

	// A field that is submitted unchanged is not changed.
	f.want(f.post(page+"/change", "rate", "5/s", "rate-was", "5/s", "days", "30"), http.StatusSeeOther)
	f.want(f.get(page), http.StatusOK, "The token is changed.", "in 30 d")
	f.want(f.post(page+"/change", "rate", "", "rate-was", "5/s", "days", ""), http.StatusSeeOther)
	if c := now(); c.Rate.Limited() || !c.Expires.Equal(noon.Add(30*24*time.Hour)) {
		t.Errorf("got %+v, want no rate and the same expiry", c)
	}
	for says, fields := range map[string][]string{
		"nothing to change":        {"rate", "", "rate-was", "", "days", ""},
		"a rate is a whole number": {"rate", "fast", "days", ""},
		"choose when it expires":   {"rate", "", "days", "-1"},
	} {
		f.want(f.post(page+"/change", fields...), http.StatusBadRequest, says, `role="alert"`, "<h1>Ada</h1>")
	}
	f.want(f.post(page+"/change", "rate", "no", "days", "7"), http.StatusBadRequest, `value="no"`, `value="7" selected`)
	f.clock.Advance(31 * 24 * time.Hour)
	f.logIn(f.key)
	f.want(f.get(page), http.StatusOK, "expired", page+"/change")
	f.want(f.post(page+"/change", "days", "never"), http.StatusSeeOther)
	now() // the token is valid again
	f.want(f.post("/tokens/nobody/change", "days", "never"), http.StatusNotFound, "there is no such token")
	if did := f.did(); !strings.HasSuffix(did, "admin token.grant, admin token.change, admin token.change, admin "+
		"token.change, admin token.change, admin token.change") {
		t.Errorf("the audit: got %s, want token.grant, then token.change 5 times, at the end", did)
	}
	f.want(f.post(page+"/revoke", "sure", "yes"), http.StatusSeeOther)
	f.lacks("a revoked token can be edited", f.get(page), "<form method=\"post\" action=\""+f.roots[f.browser]+page)
	f.want(f.post(page+"/change", "days", "never"), http.StatusConflict, "it was revoked")
	f.want(f.read(f.anotherBrowser().PostForm(f.at(page+"/change"), nil)), http.StatusUnauthorized)
}

func TestLongLists(t *testing.T) {
	f := loggedIn(t)
	for i := range 60 {
		f.create(access.Credential{Kind: access.SourceKind, Name: fmt.Sprintf("gateway-%02d", i),
			Vehicles: access.AllVehicles()})
		f.create(access.Credential{Developer: fmt.Sprintf("Developer %02d", i), Vehicles: access.AllVehicles()})
		f.clock.Advance(time.Second)
	}
	f.want(f.get("/sources"), http.StatusOK, "1 to 25 of 60", "gateway-00", "gateway-24", "/sources?page=2")
	f.want(f.get("/sources?page=3"), http.StatusOK, "51 to 60 of 60", "gateway-59", "/sources?page=2")
	f.want(f.get("/sources?page=99"), http.StatusOK, "51 to 60 of 60")
	for _, page := range []string{"0", "-1", "x", "99999999999999999999", ""} {
		f.want(f.get("/sources?page="+page), http.StatusOK, "1 to 25 of 60")
	}
	f.want(f.get("/tokens"), http.StatusOK, "Developer 59", "Developer 35") // newest first
	f.lacks("a page of 25 holds more", f.get("/tokens"), "Developer 34")
}

func TestJamList_LongestFirst(t *testing.T) {
	f := loggedIn(t)
	for i := range 30 {
		f.report(vehicle.ID(fmt.Sprintf("car%02d", i)), jammed(time.Duration(i+1)*time.Minute))
	}
	a := f.get("/")
	f.want(a, http.StatusOK, `/vehicles/car29"`, "and 22 more in a jam", "since 2026-11-20 11:30:00 UTC",
		"raffic jam: ")
	if strings.Index(a.body, "car29") > strings.Index(a.body, "car28") || strings.Contains(a.body, "car21") {
		t.Errorf("the fleet page: got %s, want the 8 longest jams, car29 first", a.body)
	}
	seen, path := 0, "/vehicles?driving=jam"
	for ; path != ""; seen++ {
		a = f.get(path)
		f.want(a, http.StatusOK, "Chosen vehicles <small>30</small>", `value="jam" selected`, "Traffic jam",
			"raffic jam: ", `/vehicles?driving=jam&amp;format=csv" download>CSV`)
		if n := strings.Count(a.body, `<a class="vid" href="`+f.roots[f.browser]+`/vehicles/car`); n !=
			[2]int{25, 5}[seen] {
			t.Errorf("page %d: got %d cars, want %d", seen+1, n, [2]int{25, 5}[seen])
		}
		_, rest, more := strings.Cut(a.body, `<a rel="next" href="`)
		path, _, _ = strings.Cut(rest, `"`)
		if path = strings.TrimPrefix(html.UnescapeString(path), f.roots[f.browser]); !more {
			path = ""
			f.want(a, http.StatusOK, `/vehicles?driving=jam">First page</a>`)
		}
	}
	if seen != 2 {
		t.Errorf("the pages: got %d, want 2", seen)
	}
	f.report("car00", vehicle.State{})
	f.fleet.Delete("car00")
	f.lacks("a forgotten car is listed", f.get("/vehicles?driving=jam"), "car00")
	f.mu.Lock()
	delete(f.states, "car01")
	f.mu.Unlock()
	f.lacks("a forgotten car is named", f.get("/vehicles?driving=jam"), "car01")
	f.clock.Advance(6 * time.Minute)
	f.want(f.get("/vehicles?driving=jam"), http.StatusOK, "No vehicle is like that now.")
	f.want(f.get("/vehicles?is=stale&throttle=&prefix=car1&sort=oldest"), http.StatusOK, `value="stale" selected`,
		`value="oldest" selected`, `value="car1"`, "car19",
		`/vehicles?format=ndjson&amp;prefix=car1&amp;reason=stale" download`)
}

func TestVehiclesPageRefuses(t *testing.T) {
	f := loggedIn(t)
	f.want(f.get("/vehicles"), http.StatusOK, "No vehicle has reported yet.")
	f.report("carA", jammed(time.Minute))
	f.want(f.get("/vehicles?is=fast"), http.StatusBadRequest, "reason must be one of stale", "carA")
	f.want(f.get("/vehicles?driving=jam&cursor=x"), http.StatusBadRequest, "cursor must be the next", "carA")
	f.want(f.get("/vehicles?format=csv&sort=newest"), http.StatusBadRequest, "leave out sort")
	a := f.get("/vehicles?format=csv&throttle=&driving=jam")
	f.want(a, http.StatusOK, "\ncarA,answered,traffic jam,3,2026-11-20T12:00:00Z,unknown,,,\n")
	a = f.read(f.anotherBrowser().Get(f.at("/vehicles?format=csv")))
	f.want(a, http.StatusUnauthorized)
	f.lacks("without a session", a, "carA")
}

func TestVehicle_Pages(t *testing.T) {
	f := loggedIn(t)
	f.report("carA", jammed(time.Minute))
	f.want(f.get("/vehicles/carA"), http.StatusOK, "Traffic jam", "(3)", "raffic jam: ", "driving/traffic",
		"No token sees this vehicle", "Vehicle.Speed", "no reading of a throttle plate")
	for _, r := range []access.Credential{
		{Developer: "Ada", Vehicles: access.VehicleSet("carA")},
		{Developer: "Bo", Operations: access.ThrottleSystem, Vehicles: access.AllVehicles()},
		{Developer: "Cy", Vehicles: access.VehicleSet("carB")},
		{Developer: "Di", Kind: access.SandboxKind},
		{Developer: "Ed", Vehicles: access.AllVehicles(), Expires: noon.Add(time.Second)},
	} {
		f.create(r)
	}
	f.clock.Advance(time.Minute)
	a := f.get("/vehicles/carA")
	f.want(a, http.StatusOK, "<b>Ada</b>", "<b>Bo</b>")
	for _, name := range []string{"Cy", "Di", "Ed"} {
		f.lacks("it sees no such car", a, "<b>"+name+"</b>")
	}
	f.want(f.get("/vehicles/nobody"), http.StatusNotFound, "No vehicle with this vid has reported")
	f.want(f.get("/vehicles/a-b"), http.StatusBadRequest, "letters and digits only")
	a = f.post("/vehicles", "vid", " carA ")
	if a.status != http.StatusSeeOther || a.leadsTo() != "/vehicles/carA" {
		t.Errorf("the search: got %d to %s, want 303 to /vehicles/carA", a.status, a.header.Get("Location"))
	}
	f.want(f.post("/vehicles", "vid", `"><script>`), http.StatusBadRequest, "letters and digits only")
	f.want(f.post("/vehicles/carA/forget", "vid", "carB"), http.StatusBadRequest, "type the vehicle&#39;s vid")
	if did := f.did(); strings.Contains(did, "forget") {
		t.Errorf("a wrong confirmation: got %s, want no vehicle.forget", did)
	}
	f.want(f.post("/vehicles/carA/forget", "vid", "carA"), http.StatusOK, "Forgotten", `/vehicles/carA">the vehicle`)
	f.clock.Advance(time.Hour)
	f.want(f.get("/login"), http.StatusOK)
	if strings.Contains(f.log.String(), "carA") {
		t.Errorf("the log: got %s, want it without carA", f.log.String())
	}
}

func TestForgetIsUndone(t *testing.T) {
	f := loggedIn(t)
	f.want(f.post("/vehicles/typo/allow"), http.StatusNotFound, "this vehicle is not forgotten")
	f.want(f.post("/vehicles/typo/forget", "vid", "typo"), http.StatusOK, "Forgotten")
	a := f.get("/vehicles/typo")
	f.want(a, http.StatusNotFound, "This vehicle was forgotten", `/vehicles/typo/allow"`,
		`It was forgotten <time datetime="2026-11-20T12:00:00Z"`)
	f.lacks("the page of a forgotten vehicle asks for its spelling, or offers to forget it again", a,
		"No vehicle with this vid has reported", "Forget it")
	a = f.post("/vehicles/typo/allow")
	if a.status != http.StatusSeeOther || a.leadsTo() != "/vehicles/typo" {
		t.Errorf("allowing: got %d to %q, want a redirect to the vehicle's page", a.status, a.leadsTo())
	}
	f.want(f.get("/vehicles/typo"), http.StatusNotFound, "Telemetry of this vehicle is accepted again.",
		"No vehicle with this vid has reported")
	f.store.Forgotten.Put(access.Tombstone{Vehicle: f.store.Forgotten.Hash("typo"), State: access.StateQuiet})
	a = f.get("/vehicles/typo")
	f.want(a, http.StatusNotFound, "Once it is erased completely")
	f.lacks("the page of a vehicle that is not erased offers to accept its telemetry", a, "typo/allow")
	if did := f.did(); !strings.Contains(did, "vehicle.allow") {
		t.Errorf("the operator: got %s, want vehicle.allow", did)
	}
}

func TestEngineInTrouble(t *testing.T) {
	inside := errors.New("dial tcp 10.0.0.7: refused")
	f := newFixtureOn(t, func(c *ops.Config) {
		c.State = func(context.Context, vehicle.ID) (vehicle.State, bool, error) {
			return vehicle.State{}, false, inside
		}
	}, func(c *console.Config) {
		c.Ready = func() error { return errors.New("the engine stores nothing in STATES") }
	})
	f.store.Fail("AuditPage", inside)
	f.logIn(f.key)
	for _, path := range []string{"/vehicles/carA", "/audit"} {
		a := f.get(path)
		f.want(a, http.StatusServiceUnavailable, "cannot be read at present")
		f.lacks(path+" shows the inside", a, "10.0.0.7")
	}
	f.want(f.get("/"), http.StatusOK, "Not ready", "the engine stores nothing in STATES")
}

func TestAudit_Pages(t *testing.T) {
	f := newFixture(t)
	for i := range 120 {
		e := access.Event{Time: noon, Actor: "ada", Action: "token.issue", Object: "cstid1",
			Detail: fmt.Sprintf("number %d.", i+1), Outcome: "failed"}
		testkit.NoError(t, f.store.Audit(t.Context(), e))
	}
	f.logIn(f.key)
	f.want(f.get("/audit"), http.StatusOK, "<b>ada</b> <code>", "number 120.", "number 71.", "/audit?before=71",
		"failed")
	f.want(f.get("/audit?before=71"), http.StatusOK, "number 70.", "number 21.", "/audit?before=21", `/audit">Newest`)
	f.want(f.get("/audit?before=-1"), http.StatusOK, "number 120.")
	f.lacks("the last page has an older one, or what is newer", f.get("/audit?before=21"), "number 21.", "/audit?before=")
}

func TestAuditIsSearched(t *testing.T) {
	f := newFixture(t)
	_, err := f.Forget(t.Context(), access.Actor{Name: "ada"}, "carA")
	testkit.NoError(t, err)
	f.clock.Advance(48 * time.Hour)
	f.create(access.Credential{Vehicles: access.VehicleSet("carB")})
	f.logIn(f.key)
	events := func(a answer) (did []string) {
		f.want(a, http.StatusOK)
		for _, part := range strings.Split(a.body, "<b>")[1:] {
			did = append(did, part[:strings.Index(part, "<")])
		}
		return did
	}
	for path, want := range map[string]string{
		"/audit": "[x ada]", "/audit?actor=ada": "[ada]", "/audit?action=token": "[x]",
		"/audit?since=2026-11-21": "[x]", "/audit?until=2026-11-20": "[ada]",
		"/audit?since=2026-11-20&until=2026-11-22": "[x ada]",
		"/audit?until=2026-11-20T12:00":            "[]", "/audit?until=2026-11-20T12:01": "[ada]",
		"/audit?since=2026-11-22T11:59:30": "[x]", "/audit?since=2026-11-22T12:01": "[]",
	} {
		if did := fmt.Sprint(events(f.get(path))); did != want {
			t.Errorf("%s: got events of %s, want %s", path, did, want)
		}
	}
	for vid, want := range map[string]string{"carA": "[ada]", " carB ": "[x]", "carC": "[]"} {
		a := f.post("/audit", "vid", vid, "actor", "")
		to := strings.TrimPrefix(a.header.Get("Location"), f.roots[f.browser])
		if a.status != http.StatusSeeOther || !strings.HasPrefix(to, "/audit?vehicle=") || strings.Contains(to, "car") {
			t.Fatalf("the search for %q: got %d to %q, want 303 to /audit?vehicle= and a hash", vid, a.status, to)
		}
		a = f.get(to)
		if did := fmt.Sprint(events(a)); did != want || strings.Contains(a.body, "carA") {
			t.Errorf("the events about %q: got those of %s, want %s, and no vid", vid, did, want)
		}
	}
	f.want(f.post("/audit", "vid", "no vid"), http.StatusBadRequest, "ASCII letters and digits")
	var many []vehicle.ID
	for i := range 21 {
		many = append(many, vehicle.ID(fmt.Sprintf("many%02d", i)))
	}
	f.create(access.Credential{Kind: access.SourceKind, Name: "gateway", Vehicles: access.VehicleSet(many...)})
	const more = "1 event among those searched names more vehicles"
	f.want(f.get("/audit?vehicle="+f.VehicleMark("many20")), http.StatusOK, more)
	f.lacks("all are listed", f.get("/audit?vehicle="+f.VehicleMark("many19")), more)
	f.want(f.get("/audit?actor=ada"), http.StatusOK, "All of these events",
		`/audit?actor=ada&amp;format=csv" download>CSV`)
	a := f.get("/audit?actor=ada&format=csv")
	if f.want(a, http.StatusOK, "time,actor,", ",ada,"); strings.Contains(a.body, ",x,") ||
		a.header.Get("Content-Disposition") != `attachment; filename="audit.csv"` {
		t.Errorf("the CSV of ada: got %v\n%s, want audit.csv without an event of x", a.header, a.body)
	}
	f.want(f.get("/audit?format=csv&before=9"), http.StatusBadRequest, "leave out limit and before")
	a = f.read(f.anotherBrowser().Get(f.at("/audit?format=csv")))
	f.want(a, http.StatusUnauthorized)
	f.lacks("without a session", a, "ada")
	for path, want := range map[string]string{
		"/audit?since=2026-11-20":                  `name="since" type="datetime-local" value="2026-11-20T00:00"`,
		"/audit?until=2026-11-20":                  `name="until" type="datetime-local" value="2026-11-21T00:00"`,
		"/audit?since=2026-11-20T14:00:00%2B02:00": `name="since" type="datetime-local" value="2026-11-20T12:00"`,
		"/audit?until=2026-11-20T12:00:30":         `name="until" type="datetime-local" value="2026-11-20T12:00:30"`,
		"/audit":                                   `name="until" type="datetime-local" value=""`,
	} {
		f.want(f.get(path), http.StatusOK, want)
	}
	f.want(f.get("/audit?since=yesterday"), http.StatusBadRequest, "a day such as 2026-11-20")
	f.want(f.get("/audit?vehicle=carA"), http.StatusBadRequest, "the first 16 digits")
}

func TestHeaders_RestrictThePage(t *testing.T) {
	f := loggedIn(t)
	for _, path := range []string{"/", "/login", "/assets/console.css", "/assets/console.js", "/assets/roads.js",
		"/assets/icon.svg", "/nothing"} {
		h := f.get(path).header
		p := h.Get("Content-Security-Policy")
		if !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") ||
			!strings.Contains(p, "frame-ancestors 'none'") {
			t.Errorf("%s: got the policy %q, want 'none' as default-src and frame-ancestors, no unsafe", path, p)
		}
		if h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: got the header %v, want Referrer-Policy same-origin", path, h)
		}
	}
	for _, path := range []string{"/", "/tokens", "/sources", "/operators", "/vehicles", "/roads", "/audit"} {
		f.lacks(path, f.get(path), "<style", " style=", "javascript:", " onclick", "<script>", "http://", "https://")
	}
	f.want(f.post("/"), http.StatusNotFound)
}

func TestTokenChoice(t *testing.T) {
	f := loggedIn(t)
	f.create(access.Credential{Developer: "Zoe Zimmermann", Expires: noon.Add(10 * 24 * time.Hour)})
	ada, _ := f.create(access.Credential{Developer: "Ada"})
	bob, _ := f.create(access.Credential{Developer: "Bob <b>", Expires: noon.Add(100 * 24 * time.Hour)})
	f.post("/tokens/"+bob.Name+"/revoke", "sure", "yes")
	for address, want := range map[string][]string{
		"/tokens?sort=name":              {"Ada", "Bob", "Zoe"},
		"/tokens?sort=end":               {"Zoe", "Bob", "Ada"},
		"/tokens?find=zimmer":            {"Zoe"},
		"/tokens?find=" + ada.Name:       {"Ada"},
		"/tokens?state=expiring":         {"Zoe"},
		"/tokens?state=usable&sort=name": {"Ada", "Zoe"},
		"/tokens?state=revoked":          {"Bob"},
		"/tokens?state=unused&sort=end":  {"Zoe", "Bob", "Ada"},
		"/tokens?state=sandbox":          {},
		"/tokens?find=%3Cscript%3E":      {},
	} {
		a := f.get(address)
		f.want(a, http.StatusOK, "Choose tokens")
		var got []string
		for _, after := range strings.Split(a.body, `<th scope="row"><a href=`)[1:] {
			got = append(got, after[strings.Index(after, ">")+1:][:3])
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s lists %q; want %q", address, got, want)
		}
		if none := strings.Contains(a.body, "No such token"); none != (len(want) == 0) ||
			strings.Contains(a.body, "<script>x") {
			t.Errorf("%s: got no such token %t, want %t, and no script:\n%s", address, none, len(want) == 0, a.body)
		}
	}
}
