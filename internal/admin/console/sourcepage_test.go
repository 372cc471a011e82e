package console_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestSources_AddRotateRemove(t *testing.T) {
	f := loggedIn(t)
	f.want(f.get("/sources"), http.StatusOK, "There is no source yet")
	f.want(f.post("/sources", "name", "a b", "scope", "all", "mark", "0"), http.StatusBadRequest, "a source&#39;s name")
	a := f.post("/sources", "name", "gateway", "scope", "list", "vehicles", "A,B", "rate", "1000/s", "strict", "yes",
		"days", "30", "mark", "1", "developer", "a field of another form")
	f.want(a, http.StatusCreated, "css_", "vehicles/VID/telemetry")
	key := a.body[strings.Index(a.body, "css_"):][:40]
	f.want(f.get("/sources"), http.StatusOK, "gateway", "A, B", "not yet", "1000/s", "strict", "in 30 d")
	f.want(f.get("/sources/gateway"), http.StatusOK, "A, B", "not yet", "1000/s",
		"<dt>Unknown signals, unused values</dt><dd>refused</dd>", "<dt>Samples accepted</dt><dd>0</dd>",
		"<dt>Samples refused</dt><dd>0</dd>")
	g, _ := f.store.Sources.Get("gateway")
	g.CountSamples(access.SampleCounts{Accepted: 12345, Late: 678, Ignored: 3, Unused: 910})
	g.CountRefused(access.Impossible, 2)
	g.CountRefused(access.WrongKey, 4)
	g.NoteRefused(access.Impossible, "Vehicle.Speed must be <= 500", noon.Add(-2*time.Minute))
	for s := range 400 { // 20 m a second, sent as 20 km/h
		x := vehicle.Sample{Vehicle: "A", Time: signal.At(noon.Add(time.Duration(s) * time.Second))}
		_ = errors.Join(x.Set(signal.Speed, 20), x.Set(signal.CurrentLatitude, 48+float64(s)*20/111195),
			x.Set(signal.CurrentLongitude, 11))
		g.CompareSpeeds([]vehicle.Sample{x})
	}
	f.want(f.get("/sources/gateway"), http.StatusOK,
		"<dt>Wrong speeds</dt><dd>positions show 3.6 times the speed (1 of 1 compared vehicles): is it in m/s?</dd>")
	f.want(f.get("/sources"), http.StatusOK, `<td class="n">12,345</td>`, "<code>impossible</code> 2", "2 min ago",
		": <code>impossible</code>", `<td class="n">3</td>`)
	f.want(f.get("/sources/gateway"), http.StatusOK, "<dd>12,345, 678 of them too late</dd>", "<dt>Values not used</dt><dd>910</dd>", "<code>impossible</code> 2", "2 min ago",
		": <code>impossible</code>, Vehicle.Speed must be &lt;= 500<", "<dt>Keys refused</dt><dd>4 ",
		"<td>Vehicle.Speed must be &lt;= 500</td>", "<code>wrong_key</code> 4", "<dt>Signals ignored</dt><dd>3</dd>")
	_, err := f.store.Sources.Verify([]byte(key), noon.Add(-3*time.Minute))
	testkit.NoError(t, err)
	f.want(f.get("/sources"), http.StatusOK, "3 min ago")
	f.want(f.post("/sources/gateway/rotate", "mark", "2", "overlap", "0"), http.StatusOK,
		"End the old secret of gateway at once?")
	f.want(f.post("/sources/gateway/rotate", "mark", "2", "overlap", "0", "sure", "yes"), http.StatusCreated, "css_",
		"The old one has ended.")
	if _, err := f.store.Sources.Verify([]byte(key), noon); err == nil {
		t.Fatal("the old key: got it accepted, want an error")
	}
	f.want(f.get("/sources"), http.StatusOK, ": <code>replaced</code>")
	f.want(f.post("/sources/gateway/rotate", "mark", "3", "overlap", "x"), http.StatusBadRequest)
	f.want(f.post("/sources/nobody/rotate", "mark", "4", "overlap", "0"), http.StatusNotFound)
	f.want(f.post("/sources/nobody/remove"), http.StatusNotFound)
	f.want(f.post("/sources/gateway/remove"), http.StatusOK, "Remove the source gateway?")
	f.want(f.post("/sources/gateway/remove", "sure", "yes"), http.StatusSeeOther)
	f.want(f.get("/sources"), http.StatusOK, "The source gateway is removed", "There is no source yet")
}

func TestSourceIsEdited(t *testing.T) {
	f := loggedIn(t)
	f.create(access.Credential{Kind: access.SourceKind, Name: "gateway", Vehicles: access.AllVehicles(), Strict: true})
	f.want(f.get("/sources"), http.StatusOK, f.roots[f.browser]+`/sources/gateway">gateway</a>`)
	f.want(f.get("/sources/gateway"), http.StatusOK, "<h1>gateway</h1>", `name="strict" value="yes" checked`,
		"/sources/gateway/remove")
	f.want(f.get("/sources/nobody"), http.StatusNotFound, "there is no such source")
	f.want(f.post("/sources/gateway/change", "rate", "7/s", "rate-was", "", "strict", "yes", "strict-was", "yes"),
		http.StatusSeeOther)
	f.want(f.get("/sources/gateway"), http.StatusOK, "The source is changed.", "<dd>7/s</dd>",
		"<dt>Unknown signals, unused values</dt><dd>refused</dd>")
	f.want(f.post("/sources/gateway/change", "rate", "7/s", "rate-was", "7/s", "strict-was", "yes"),
		http.StatusSeeOther)
	g, _ := f.store.Sources.Get("gateway")
	if g.Strict || g.Rate.String() != "7/s" {
		t.Errorf("got %+v, want rate 7/s, not strict", g.Credential)
	}
	f.want(f.post("/sources/gateway/change", "rate", "7/s", "rate-was", "7/s"), http.StatusBadRequest,
		"nothing to change")
	f.want(f.post("/sources/gateway/change", "rate", "fast", "strict", "yes"), http.StatusBadRequest,
		"a rate is a whole number", `value="fast"`, `value="yes" checked`)
	// Another operator has changed strict in between.
	f.want(f.post("/sources/gateway/change", "rate", "fast", "rate-was", "1/s", "strict-was", "yes", "strict", "yes"),
		http.StatusBadRequest,
		`name="rate-was" value="1/s"`, `name="strict-was" value="yes"`)
	f.want(f.post("/sources/gateway/change", "rate", "7/s", "rate-was", "7/s", "days", "7"), http.StatusSeeOther)
	f.want(f.get("/sources/gateway"), http.StatusOK, "as it is: in 7 d")

	f.want(f.post("/sources/gateway/grant", "only", "B A"), http.StatusSeeOther)
	f.want(f.get("/sources/gateway"), http.StatusOK, "The vehicles of the source are changed.", "<dd>A, B</dd>",
		">A\nB\n</textarea>")
	f.want(f.post("/sources/gateway/grant", "only", "A a-b"), http.StatusBadRequest, "vehicle 2 of the list",
		"A a-b</textarea>")
	f.want(f.post("/sources/gateway/grant"), http.StatusBadRequest, "name the vehicles, or choose all")
	f.want(f.post("/sources/gateway/grant", "only", "A B", "all", "yes"), http.StatusOK,
		"Let gateway send telemetry for all vehicles?")
	f.want(f.post("/sources/gateway/grant", "only", "A B", "all", "yes", "sure", "yes"), http.StatusSeeOther)
	if g, _ := f.store.Sources.Get("gateway"); !g.Vehicles.All() || !g.Expires.Equal(noon.Add(7*24*time.Hour)) {
		t.Errorf("got %+v, want all vehicles, expiry in 7 days", g.Credential)
	}
	if did := f.did(); did != "x source.add, admin source.change, admin source.change, admin source.change, admin "+
		"source.change, admin source.change" {
		t.Errorf("the audit: got %s, want source.add, then source.change 5 times", did)
	}
}

func TestListsAreSorted(t *testing.T) {
	f := loggedIn(t)
	by := access.Actor{Name: "x", Admin: true}
	for _, name := range []string{"beta", "Alpha", "gamma"} {
		f.create(access.Credential{Kind: access.SourceKind, Name: name, Vehicles: access.AllVehicles()})
		f.create(access.Credential{Kind: access.OperatorKind, Name: name})
		f.clock.Advance(time.Minute)
	}
	_, _, err := f.Rotate(t.Context(), by, access.OperatorKind, "beta", 0)
	testkit.NoError(t, err)
	for name, days := range map[string]int{"beta": 40, "gamma": 3} {
		end := f.clock.Now().Add(time.Duration(days) * 24 * time.Hour)
		_, err := f.ChangeCredential(t.Context(), by, access.SourceKind, name, access.Change{Expires: &end})
		testkit.NoError(t, err)
	}
	for i, name := range []string{"gamma", "beta"} {
		g, _ := f.store.Sources.Get(name)
		g.NoteRefused(access.Impossible, "", noon.Add(time.Duration(i)*time.Minute))
	}
	for address, want := range map[string]string{
		"/sources":                "Alpha beta gamma",
		"/sources?sort=newest":    "gamma Alpha beta",
		"/sources?sort=refused":   "beta gamma Alpha",
		"/sources?state=refused":  "beta gamma",
		"/sources?state=expiring": "gamma",
		"/sources?state=expired":  "",
		"/sources?find=ALPH":      "Alpha",
		"/operators":              "Alpha beta gamma",
		"/operators?sort=newest":  "gamma Alpha beta",
		"/operators?sort=key":     "Alpha gamma beta",
	} {
		a := f.get(address)
		f.want(a, http.StatusOK, "Choose ")
		_, list, _ := strings.Cut(a.body, `<table class="records">`)
		var got []string
		for _, after := range strings.Split(list, `<th scope="row">`)[1:] {
			name, _, _ := strings.Cut(after, "</")
			got = append(got, name[strings.LastIndex(name, ">")+1:])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s lists %q; want %q", address, got, want)
		}
		if none := strings.Contains(a.body, "<p class=\"quiet\">No such "); none != (want == "") {
			t.Errorf("%s: got no such thing %t, want %t:\n%s", address, none, want == "", a.body)
		}
	}
}

func TestOperators(t *testing.T) {
	f := loggedIn(t)
	f.want(f.get("/operators"), http.StatusOK, "no operator but the holder of the admin key", "Replace the admin key")
	f.want(f.post("/operators", "name", "admin", "mark", "1"), http.StatusBadRequest, "choose another")
	a := f.post("/operators", "name", "ada", "mark", "2")
	f.want(a, http.StatusCreated, "cso_")
	f.want(f.post("/operators/ada/rotate", "mark", "3"), http.StatusOK, "End the old secret of ada at once?")
	a = f.post("/operators/ada/rotate", "mark", "3", "sure", "yes")
	f.want(a, http.StatusCreated, "cso_", "The old one has ended")
	key := a.body[strings.Index(a.body, "cso_"):][:40]
	hers := &fixture{t: t, server: f.server, browser: f.anotherBrowser(), roots: make(map[*http.Client]string)}
	hers.logIn(key)
	a = hers.get("/operators")
	hers.want(a, http.StatusOK, `<th scope="row">ada</th>`)
	f.lacks("an operator is offered what only the admin key does", a, "/operators/ada/", "/adminkey")
	f.want(f.post("/operators/nobody/remove"), http.StatusNotFound, "there is no such operator")
	f.want(f.post("/operators/ada/remove"), http.StatusOK, "Remove the operator ada?")
	f.want(f.post("/operators/ada/remove", "sure", "yes"), http.StatusSeeOther)
	hers.want(hers.get("/operators"), http.StatusUnauthorized)
	if did := f.did(); did != "admin operator.add, admin operator.rotate, admin operator.remove" {
		t.Errorf("the audit: got %s, want operator.add, operator.rotate, operator.remove", did)
	}
}

func TestReadOnlyOperator(t *testing.T) {
	f := loggedIn(t)
	a := f.post("/operators", "name", "grafana", "mark", "1", "read-only", "yes")
	f.want(f.get("/operators"), http.StatusOK, `grafana <span class="badge">read-only</span>`)
	f.create(access.Credential{Kind: access.SourceKind, Name: "gw", Vehicles: access.AllVehicles()})
	c, _ := f.create(access.Credential{Vehicles: access.AllVehicles()})
	tok := "/tokens/" + c.Name
	f.report("car1", jammed(time.Minute))
	f.did()
	f.logIn(a.body[strings.Index(a.body, "cso_"):][:40])
	form := regexp.MustCompile(`method="post" action="[^"]*/(?:tokens|sources|operators|adminkey|vehicles/)[^"]*"`)
	for _, page := range []string{"/vehicles/car1", "/tokens", tok, "/sources", "/sources/gw", "/operators"} {
		a := f.get(page)
		f.want(a, http.StatusOK)
		if got := form.FindString(a.body); got != "" {
			t.Errorf("%s: got the form %s, want none that changes something", page, got)
		}
	}
	for path, fields := range map[string][]string{"/sources": {"name", "mine", "scope", "all", "mark", "2"},
		"/vehicles/car1/relearn": {"mark", "3"}, tok + "/revoke": {"sure", "yes"}} {
		f.want(f.post(path, fields...), http.StatusForbidden, "this key only reads")
	}
	if did := f.did(); did != "" {
		t.Errorf("got the audit events %s, want none", did)
	}
}
