package main_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"example.org/carstate/internal/test/browsertest"
	"example.org/carstate/internal/test/nodeprocess"
)

// eavesdropper is a server on another port of the console's host; /toss tries to replace the
// session's cookie.
type eavesdropper struct {
	mu   sync.Mutex
	said []string // of each request: path, cookies, referer
}

const tossed = "carstate-session=tossed"

func (e *eavesdropper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.said = append(e.said, r.URL.Path+" cookies:"+r.Header.Get("Cookie")+" referer:"+r.Referer())
	e.mu.Unlock()
	if r.URL.Path == "/toss" {
		w.Header().Set("Set-Cookie", tossed+"; Path=/")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!DOCTYPE html><title>another port</title><link rel=icon href='data:,'><h1>Another port</h1>")
}

// Another server on the console's host, reached through a foreign page, gets nothing of the
// session.
func TestConsoleFromAnotherPort(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	heard := new(eavesdropper)
	other := httptest.NewServer(heard)
	t.Cleanup(other.Close)
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!DOCTYPE html><title>elsewhere</title><link rel=icon href='data:,'><h1>Elsewhere</h1>"+
			"<a href='%s/'>here</a>", other.URL)
	}))
	t.Cleanup(foreign.Close)
	_, port, _ := net.SplitHostPort(foreign.Listener.Addr().String())

	b := browsertest.Open(t, p.URL(nodeprocess.Admin))
	b.Run(chromedp.Navigate(b.Base + "/tokens"))
	logIn(b, adminKeyOf(t, p.Dir))
	b.Expect(`document.querySelector("h1").innerText`, "Tokens")
	page := b.Eval(`location.pathname`)
	root := strings.TrimSuffix(page, "/tokens")
	if !strings.HasPrefix(root, "/s/") || root == page {
		t.Fatalf("the page after the login: got %s, want /s/…/tokens", page)
	}

	b.Run(chromedp.Navigate("http://localhost:" + port + "/"))
	b.Expect(`document.querySelector("h1").innerText`, "Elsewhere")
	b.Eval(`document.querySelector("a").click(); ""`)
	b.Expect(`document.querySelector("h1").innerText`, "Another port")
	for _, path := range []string{"/again", "/tokens", "/s", "/s/", "/s/x/tokens", "/login", "/toss", "/after"} {
		ask := `fetch("` + path + `", {credentials: "include"}).then(r => r.text())`
		b.Expect(ask+`.then(text => "" + text.includes("Another"))`, "true")
	}
	b.Expect(`JSON.stringify(Object.entries(localStorage)) + JSON.stringify(Object.entries(sessionStorage))`, "[][]")
	b.Expect(`indexedDB.databases().then(d => "" + d.length)`, "0")
	b.Expect(`navigator.serviceWorker.getRegistrations().then(r => "" + r.length)`, "0")
	b.Expect(`cookieStore.getAll().then(all => all.map(c => c.name + "=" + c.value).join())`, tossed)
	// Even a page that knew the session's root path gets no response and no frame.
	for _, path := range []string{root + "/tokens", "/", "/v1/tokens"} {
		b.Expect(`fetch("`+b.Base+path+`", {credentials: "include"}).catch(e => e.name)`, "TypeError")
		b.Eval(`document.body.append(Object.assign(document.createElement("iframe"), {src: "` + b.Base + path + `"})); ""`)
		b.Complains("'" + b.Base + "/' violates the following Content Security Policy directive: \"frame-ancestors 'none'\"")
	}

	heard.mu.Lock()
	said := strings.Join(heard.said, "\n")
	heard.mu.Unlock()
	if strings.Count(said, "cookies:") < 9 || !strings.Contains(said, "/again cookies: ") ||
		!strings.Contains(said, "/after cookies:"+tossed) {
		t.Errorf("the other port: got\n%s\nwant 9 requests or more, also /again, and /after with %s", said, tossed)
	}
	rest := strings.ReplaceAll(said, tossed, "")
	if strings.Contains(rest, "carstate-session") || strings.Contains(rest, root) {
		t.Errorf("the other port: got the session, want it nowhere:\n%s", said)
	}

	// The cookie of the other port has no effect.
	for _, section := range []string{"Tokens", "Audit"} {
		b.Run(chromedp.Navigate(b.Base + "/" + strings.ToLower(section)))
		b.Expect(`document.querySelector("h1").innerText + location.pathname`, section+root+"/"+strings.ToLower(section))
	}
	b.Run(chromedp.Navigate(b.Base + "/"))
	b.Expect(`document.querySelector("h1").innerText + location.pathname`, "Fleet"+root)
	b.Expect(`document.querySelector("#live").innerText`, "Live")
	visit(b, "Sources")
	b.Eval(`document.querySelector(".me button[type=submit]").click(); ""`)
	b.Expect(`document.querySelector("h1").innerText + location.pathname + localStorage.length`, "Log in"+root+"/login0")
	b.Run(chromedp.Navigate(b.Base + "/audit"))
	b.Expect(`document.querySelector("h1").innerText + location.pathname`, "Log in/audit")
}
