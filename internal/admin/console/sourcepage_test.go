package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
)

// TestSources: add, see when it was last seen and why refused, rotate, remove.
func TestSources(t *testing.T) {
	f := newFixture(t)
	f.logIn(f.key)
	f.want(f.get("/sources"), http.StatusOK, "There is no source yet")
	for what, c := range map[string][]string{
		"a source&#39;s name":              {"name", "a b", "scope", "all"},
		"name the vehicles, or choose all": {"name", "gateway", "scope", "list", "vehicles", ""},
		"a rate is a whole number":         {"name", "gateway", "scope", "all", "rate", "fast"},
	} {
		f.want(f.post("/sources", append(c, "mark", what)...), http.StatusBadRequest, what)
	}
	a := f.post("/sources", "name", "gateway", "scope", "list", "vehicles", "A,B", "rate", "1000/s", "strict", "yes", "mark", "1")
	f.want(a, http.StatusCreated, "css_", "vehicles/VID/telemetry")
	key := a.body[strings.Index(a.body, "css_"):][:40]
	f.want(f.get("/sources"), http.StatusOK, "gateway", "A, B", "not yet", "1000/s", "<dt>Unknown signals</dt><dd>refused</dd>", "<dt>Samples accepted</dt><dd>0</dd>", "<dt>Samples refused</dt><dd>0</dd>")
	g, _ := f.store.Sources.Get("gateway")
	g.CountSamples(12345, 3)
	g.CountRefused(access.Impossible, 2, noon.Add(-2*time.Minute))
	f.want(f.get("/sources"), http.StatusOK, "<dd>12,345</dd>", "<code>impossible</code> 2", "2 min ago", ": <code>impossible</code>", "<dt>Signals ignored</dt><dd>3</dd>")
	if _, err := f.store.Sources.Verify([]byte(key), noon.Add(-3*time.Minute)); err != nil {
		t.Fatal(err)
	}
	f.want(f.get("/sources"), http.StatusOK, "3 min ago")
	f.want(f.post("/sources/gateway/rotate", "mark", "2", "overlap", "0"), http.StatusCreated, "css_", "The old one has ended.")
	if _, err := f.store.Sources.Verify([]byte(key), noon); err == nil {
		t.Fatal("the old key still counts")
	}
	f.want(f.get("/sources"), http.StatusOK, ": <code>replaced</code>")
	f.want(f.post("/sources/gateway/rotate", "mark", "3", "overlap", "x"), http.StatusBadRequest)
	f.want(f.post("/sources/nobody/rotate", "mark", "4", "overlap", "0"), http.StatusNotFound)
	f.want(f.post("/sources/nobody/remove"), http.StatusNotFound)
	f.want(f.post("/sources/gateway/remove"), http.StatusSeeOther)
	f.want(f.get("/sources"), http.StatusOK, "The source gateway is removed", "There is no source yet")
}

// TestOperators: only the admin key is offered what makes operators.
func TestOperators(t *testing.T) {
	f := newFixture(t)
	f.logIn(f.key)
	f.want(f.get("/operators"), http.StatusOK, "no operator but the holder of the admin key", "Replace the admin key")
	f.want(f.post("/operators", "name", "admin", "mark", "1"), http.StatusBadRequest, "choose another")
	a := f.post("/operators", "name", "ada", "mark", "2")
	f.want(a, http.StatusCreated, "cso_")
	a = f.post("/operators/ada/rotate", "mark", "3")
	f.want(a, http.StatusCreated, "cso_", "The old one has ended")
	key := a.body[strings.Index(a.body, "cso_"):][:40]
	hers := &fixture{t: t, server: f.server, browser: f.anotherBrowser(), roots: make(map[*http.Client]string)}
	hers.logIn(key)
	a = hers.get("/operators")
	hers.want(a, http.StatusOK, "<h2>ada</h2>")
	if strings.Contains(a.body, "/operators/ada/") || strings.Contains(a.body, "/adminkey") {
		t.Error("an operator is offered what only the admin key does")
	}
	f.want(f.post("/operators/nobody/remove"), http.StatusNotFound, access.ErrNotFound.Error())
	f.want(f.post("/operators/ada/remove"), http.StatusSeeOther)
	hers.want(hers.get("/operators"), http.StatusUnauthorized)
	if did := f.did(); did != "admin operator.add, admin operator.rotate, admin operator.remove" {
		t.Error(did)
	}
}
