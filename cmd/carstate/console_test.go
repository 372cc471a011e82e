package main_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.org/carstate/internal/test/browsertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

var updateScreens = flag.Bool("screens", false, "update the console's screenshots in docs/")

const (
	carInJam    = "NHeN4UqVsohGS55I7LBdh" // drives a recorded drive that ends in a jam
	carOnRoad   = "WDB1110000P0000001"
	carWithCode = "WDB1110000P0000002"
)

type consoleFixture struct {
	*process
	t        *testing.T
	adminKey string
	source   string
}

func startConsole(t *testing.T) *consoleFixture {
	t.Helper()
	dir := t.TempDir()
	f := &consoleFixture{process: start(t, dir), t: t}
	f.adminKey = adminKeyOf(t, dir)
	f.source = f.addSource(t, "gateway-1")
	f.carstate(t, "replay", demoDrive, "--vid", carInJam)
	f.drive(carOnRoad, 52.5, "")
	f.drive(carWithCode, 48, `,"Vehicle.OBD.DTCList":["P0121"]`)
	return f
}

func adminKeyOf(t *testing.T, dir string) string {
	t.Helper()
	return strings.TrimSpace(readFile(t, filepath.Join(dir, "admin.key")))
}

func (f *consoleFixture) drive(vid string, kmh float64, more string) {
	f.t.Helper()
	line := fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%g,"Vehicle.OBD.ThrottlePosition":20%s}}`, vid,
		time.Now().UnixMilli(), kmh, more)
	if n, err := postLines(f.process, f.source, line); n != 1 || err != nil {
		f.t.Fatalf("telemetry of %s: got %d accepted, %v, want 1", vid, n, err)
	}
}

func (f *consoleFixture) open() *browsertest.Browser {
	f.t.Helper()
	b := browsertest.Open(f.t, f.URL(nodeprocess.Admin))
	b.Run(chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(b.Base+"/"))
	return b
}

func logIn(b *browsertest.Browser, key string) {
	b.Expect(`document.activeElement.id`, "key")
	b.Press(key)
	b.Press(kb.Enter)
}

func turnTo(b *browsertest.Browser, path string) {
	b.Expect(`String(!!document.body?.dataset.root)`, "true")
	b.Run(chromedp.Navigate(b.Base + b.Eval(`document.body.dataset.root`) + strings.TrimSuffix(path, "/")))
}

func visit(b *browsertest.Browser, section string) {
	// Mark the present page, because the new one may be of the same section.
	b.Expect(`document.documentElement.dataset.left = "left",
		[...document.querySelectorAll("nav a")].find(a => a.innerText === "`+section+`").click() || "clicked"`, "clicked")
	b.Expect(`(document.documentElement.dataset.left || document.readyState) + " " +
		((document.querySelector("nav a[aria-current=page]") || {}).innerText || "")`, "complete "+section)
}

func confirmAction(b *browsertest.Browser) {
	b.Expect(`(document.querySelector("input[name=sure]") || {}).value || ""`, "yes")
	b.Run(chromedp.Click(chromedp.CSS("main .bad")))
}

func TestConsoleDay(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	b := f.open()

	b.Expect(`document.querySelector("h1").innerText + document.querySelectorAll("nav").length`, "Log in0")
	logIn(b, "csa_wrong")
	b.Expect(`document.querySelector("[role=alert]").innerText.includes("not a key of this service")`, "true")
	b.Expect(`document.cookie`, "")
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector("h1").innerText`, "Fleet")
	b.Expect(`document.querySelector(".me span").innerText`, "admin")
	b.Expect(`document.cookie`, "") // no script can read it

	b.Expect(`document.querySelector(".tiles").innerText.replace(/\s+/g, " ")`,
		"Normal driving 2 Slow driving 0 Traffic jam 1 Not driving 0 Stale or unknown 0 Throttle anomaly 1")
	b.Expect(`document.querySelector("[data-live=jam] .vid").innerText`, carInJam)
	b.Expect(`document.querySelector("[data-live=jam] .why").innerText.includes("raffic jam: ")`, "true")
	b.Expect(`document.querySelector("[data-live=anomaly] .vid").innerText`, carWithCode)
	b.Expect(`document.querySelector("[data-live=anomaly] .why").innerText.includes("P0121")`, "true")
	b.Expect(`document.querySelector("#live").innerText`, "Live")

	f.drive("WDB1110000P0000003", 60, "")
	b.Expect(`document.querySelector(".tiles dd").innerText`, "3")

	visit(b, "Vehicles")
	b.TabTo(`document.activeElement.id === "vid"`)
	b.Press(carInJam)
	b.Press(kb.Enter)
	b.Expect(`location.pathname.replace(/^\/s\/\w+/, "") + location.search`, "/vehicles/"+carInJam)
	b.Expect(`document.querySelector(".verdict .answer .state").innerText`, "Traffic jam")
	b.Expect(`document.querySelector(".verdict .why").innerText.includes("raffic jam: ")`, "true")
	b.Expect(`[...document.querySelectorAll(".verdict tbody th")].map(e => e.textContent).some(text => `+
		`text.startsWith("share of the free flow"))`, "true")
	b.Expect(`document.querySelector("[data-live=curve] .line").getAttribute("d").length > 1000 ? "a curve" : ""`,
		"a curve")
	b.Expect(`document.querySelector("[data-live=curve] .band.jam") ? "a band" : ""`, "a band")
	b.Expect(`document.querySelector("[data-live=readings]").innerText.includes("Vehicle.OBD.Speed")`, "true")
	b.Expect(`document.querySelector("[aria-labelledby=sees-h] .quiet").innerText`,
		"No token sees this vehicle. Issue one.")

	f.drive(carInJam, 3.7, "")
	b.Expect(`document.querySelector("[data-live=readings]").innerText.includes("3.7 km/h")`, "true")

	visit(b, "Tokens")
	b.Expect(`document.querySelector("details.form").open`, "true") // there is none yet
	b.TabTo(`document.activeElement.id === "developer"`)
	b.Press("Ada Lovelace")
	b.TabTo(`document.activeElement.value === "list"`)
	b.Press(" ")
	b.TabTo(`document.activeElement.name === "vehicles"`)
	b.Press(carInJam + " " + carOnRoad)
	b.TabTo(`document.activeElement.innerText === "Issue"`)
	b.Press(kb.Enter)
	b.Expect(`document.querySelector("h1").innerText`, "Token issued")
	token := b.Eval(`document.querySelector("#secret").innerText`)
	ask := func() nodeprocess.Answer {
		t.Helper()
		a, err := f.ask(drivingPath, token, carInJam)
		testkit.NoError(t, err)
		return a
	}
	if a := ask(); a.HTTP != http.StatusOK || a.Driving != "3" {
		t.Errorf("the new token: got %+v, want HTTP 200, driving 3", a)
	}
	if line := b.Eval(`document.querySelector("#query").innerText`); !strings.Contains(line,
		f.Address(nodeprocess.Query)) || !strings.Contains(line, token) {
		t.Errorf("the line to paste: got %.60s…, want the address and the token", line)
	}
	b.Eval(`location.reload(); ""`) // sends the form again
	b.Expect(`document.querySelector("h1").innerText`, "Already done")
	visit(b, "Tokens")
	b.Expect(`document.querySelectorAll(".records tbody tr").length + document.querySelector(".records th a").innerText`,
		"1Ada Lovelace")
	b.Expect(`document.querySelector(".records tbody").innerText.includes("1, 0 of them refused")`, "true")
	b.Expect(`document.body.innerText.includes("`+token[:12]+`")`, "false")
	b.Run(chromedp.Click(chromedp.CSS(".records th a")))
	b.Expect(`document.querySelector("h1").innerText`, "Ada Lovelace")
	b.TabTo(`document.activeElement.id === "add"`)
	b.Press(carWithCode)
	b.TabTo(`document.activeElement.innerText === "Change the vehicles"`)
	b.Press(kb.Enter)
	b.Expect(`document.querySelector("[role=status]").innerText`, "The vehicles of the token are changed.")
	if a, err := f.ask(drivingPath, token, carWithCode); err != nil || a.Driving != "1" {
		t.Errorf("%s, which was added: got %+v, %v, want driving 1", carWithCode, a, err)
	}
	b.TabTo(`document.activeElement.id === "rate"`)
	b.Press("100/min")
	b.Press(kb.Enter)
	b.Expect(`document.querySelector("[role=status]").innerText`, "The token is changed.")
	b.Expect(`document.querySelector(".facts").innerText.includes("Rate\n100/min")`, "true")

	b.Run(chromedp.Click(chromedp.CSS(".bad")))
	b.Expect(`document.querySelector("h1").innerText`, "Revoke the token of Ada Lovelace?")
	b.IsClean(browsertest.Axe(t))
	b.Run(chromedp.Click(chromedp.CSS("main p a"))) // cancels
	b.Expect(`document.querySelector("h1").innerText + document.querySelector(".records .badge").innerText`,
		"Tokensactive")
	if a := ask(); a.HTTP != http.StatusOK {
		t.Errorf("the token before the confirmation: got %+v, want HTTP 200", a)
	}
	b.Run(chromedp.Click(chromedp.CSS(".records th a")))
	b.Expect(`document.querySelector("h1").innerText`, "Ada Lovelace")
	b.Run(chromedp.Click(chromedp.CSS(".bad")))
	confirmAction(b)
	b.Expect(`document.querySelector("[role=status]").innerText`,
		"The token of Ada Lovelace is revoked: queries with it are refused from now on.")
	b.Expect(`document.querySelector(".records .badge").innerText`, "revoked")
	if a := ask(); a.HTTP != http.StatusUnauthorized {
		t.Errorf("the revoked token: got %+v, want HTTP 401", a)
	}
	visit(b, "Tokens")
	b.Expect(`document.querySelector(".records tbody").innerText.includes("revoked")`, "true")
	b.Expect(`document.querySelector("[role=status]").innerText`, "") // only once

	visit(b, "Sources")
	b.Expect(`document.querySelector(".records td:nth-of-type(3)").innerText === "not yet" ? "unseen" : "seen"`, "seen")
	b.Run(chromedp.Click(chromedp.CSS("details.form summary")))
	b.TabTo(`document.activeElement.id === "name"`)
	b.Press("car-7")
	b.TabTo(`document.activeElement.name === "vehicles"`)
	b.Press(carOnRoad)
	b.Eval(`document.querySelector("input[value=list]").checked = true; ""`)
	b.Run(chromedp.Click(chromedp.CSS("details.form .primary")))
	b.Expect(`document.querySelector("h1").innerText`, "Source added")
	key := b.Eval(`document.querySelector("#secret").innerText`)
	if n, err := post(f.process, key, []string{carOnRoad}); n != 1 || err != nil {
		t.Errorf("the new source: got %d accepted, %v, want 1", n, err)
	}
	turnTo(b, "/sources/car-7")
	b.Run(chromedp.Click(chromedp.CSS(`form[action$="/sources/car-7/remove"] button`)))
	confirmAction(b)
	b.Expect(`document.querySelector("[role=status]").innerText`,
		"The source car-7 is removed: its telemetry is refused from now on.")
	if n, err := post(f.process, key, []string{carOnRoad}); err == nil {
		t.Errorf("the removed source: got %d accepted, want an error", n)
	}

	// The first attempt mistypes the vid that confirms it.
	forget := func(vid string) {
		turnTo(b, "/vehicles/"+carInJam)
		b.Run(chromedp.Click(chromedp.CSS(".danger summary")), chromedp.SendKeys(chromedp.CSS("#confirm"), vid))
		b.Press(kb.Enter)
	}
	forget("NHeN4")
	b.Expect(`document.querySelector("h1").innerText`, "Not forgotten")
	forget(carInJam)
	b.Expect(`document.querySelector("h1").innerText`, "Forgotten")
	b.Expect(`"" + document.querySelector("main").innerText.includes("`+carInJam+`") +
		document.querySelector("#receipt").innerText.includes("forgotten_at")`, "falsetrue")
	other := f.issue(t)
	if a, err := f.ask(drivingPath, other, carInJam); err != nil || a.Reason != "unknown" {
		t.Errorf("a forgotten car: got %+v, %v, want the reason unknown", a, err)
	}
	visit(b, "Fleet")
	b.Expect(`document.querySelector("[data-live=jam]").innerText`, "No car is in a traffic jam.")
	turnTo(b, "/vehicles/"+carInJam)
	b.Expect(`document.querySelector(".first h2").innerText`, "This vehicle was forgotten")
	b.IsClean(browsertest.Axe(t))
	b.Expect(`"" + document.querySelector(".first").innerText.includes("Once it is erased completely") +
		document.querySelector(".first button")`, "truenull")

	visit(b, "Audit")
	b.Expect(`[...document.querySelectorAll(".events li")].slice(0, 5).map(l => l.querySelector("b").innerText + `+
		`" " + l.querySelector("code").innerText).join()`,
		"admin token.issue,admin vehicle.forget,admin source.remove,admin source.add,admin token.revoke")
	b.Expect(`document.querySelector(".events").innerText.includes("`+carInJam+`")`, "false")
	b.Expect(`fetch(document.querySelector("a[download]").href).then(r => r.text()).then(text => `+
		`text.split("\n")[0] + " " + text.includes(",token.change,"))`,
		"time,actor,admin,action,object,detail,outcome true")
	for _, secret := range []string{token, key, f.adminKey} {
		b.Expect(`document.documentElement.innerHTML.includes("`+secret[4:16]+`")`, "false")
		if strings.Contains(f.log.String(), secret[4:16]) {
			t.Error("the log: got a secret, want none")
		}
	}
	if strings.Contains(f.log.String(), carInJam) {
		t.Errorf("the log: got the vid %s, want it nowhere", carInJam)
	}

	b.Eval(`document.querySelector(".me button[type=submit]").click(); ""`)
	b.Expect(`location.pathname.replace(/^\/s\/\w+/, "")`, "/login")
	b.Run(chromedp.Navigate(b.Base + "/tokens"))
	b.Expect(`document.querySelector("h1").innerText`, "Log in")
	b.StayedHere()
}

// A removed operator is logged out at once, on open pages, too.
func TestConsoleOperators(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	b := f.open()
	logIn(b, f.adminKey)
	visit(b, "Operators")
	b.TabTo(`document.activeElement.id === "name"`)
	b.Press("ada")
	b.Press(kb.Enter)
	b.Expect(`document.querySelector("h1").innerText`, "Operator added")
	key := b.Eval(`document.querySelector("#secret").innerText`)

	hers := f.open()
	logIn(hers, key)
	hers.Expect(`document.querySelector(".me span").innerText`, "ada")
	visit(hers, "Operators")
	hers.Expect(`document.querySelectorAll("main form[method=post]").length`, "0")
	turnTo(hers, "/sources/gateway-1")
	hers.Run(chromedp.Click(chromedp.CSS(`form[action$="/sources/gateway-1/rotate"] button`)))
	hers.Expect(`document.querySelector("h1").innerText`, "Source rotated")
	visit(hers, "Audit")
	hers.Expect(`document.querySelector(".events b").innerText + " " + document.querySelector(".events code").innerText`,
		"ada source.rotate")
	visit(hers, "Fleet")
	hers.Expect(`document.querySelector("#live").innerText`, "Live")

	visit(b, "Operators")
	b.Run(chromedp.Click(chromedp.CSS(".records summary")),
		chromedp.Click(chromedp.CSS(`form[action$="/operators/ada/remove"] button`)))
	confirmAction(b)
	b.Expect(`document.querySelector("[role=status]").innerText`, "The operator ada is removed and logged out.")
	hers.Expect(`document.querySelector("h1").innerText`, "Log in") // by itself

	b.Run(chromedp.Click(chromedp.CSS(".danger summary")), chromedp.Click(chromedp.CSS(".danger button")))
	confirmAction(b)
	b.Expect(`document.querySelector("h1").innerText`, "Log in")
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector("[role=alert]") ? "refused" : ""`, "refused")
	next, err := os.ReadFile(filepath.Join(f.Dir, "admin.key"))
	testkit.NoError(t, err)
	logIn(b, strings.TrimSpace(string(next)))
	b.Expect(`document.querySelector("h1").innerText`, "Fleet")
	b.StayedHere()
	hers.StayedHere()
}

// Every page is checked with axe-core in light mode, in dark mode and on a narrow screen.
func TestConsoleLooks(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	axe := browsertest.Axe(t)
	empty := start(t, t.TempDir())
	b := f.open()
	b.KeepAxe(axe)
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector("h1").innerText`, "Fleet")
	f.issue(t)
	f.driveTown(town())
	f.breakPlate()
	f.carstate(t, "token", "issue", "--developer", "Grace Hopper", "--vehicles", carInJam, "--expires", "3d", "--rate",
		"10/s")
	f.carstate(t, "operator", "add", "ada")
	turnTo(b, "/tokens")
	token := b.Eval(`document.querySelector(".records th a").pathname.split("/").pop()`)
	pages := []struct{ name, path string }{
		{"fleet", "/"},
		{"vehicle", "/vehicles/" + carInJam},
		{"anomaly", "/vehicles/" + carWithFault},
		{"roads", "/roads"},
		{"way", "/vehicles/street22xnow7"},
		{"vehicles", "/vehicles"},
		{"unknown", "/vehicles/nobody"},
		{"tokens", "/tokens"},
		{"token", "/tokens/" + token},
		{"sources", "/sources"},
		{"source", "/sources/gateway-1"},
		{"operators", "/operators"},
		{"audit", "/audit"},
		{"nothing", "/nothing"},
	}
	for _, screen := range []struct {
		name          string
		width, height int64
		scheme        string
	}{
		{"light", 1280, 1500, "light"},
		{"dark", 1280, 1500, "dark"},
		{"390", 390, 900, "light"},
		{"390-dark", 390, 844, "dark"},
	} {
		b.Prefer(screen.scheme)
		b.Run(chromedp.EmulateViewport(screen.width, screen.height))
		for _, page := range pages {
			f.drive(carOnRoad, 50, "")
			turnTo(b, page.path)
			looksRight(b, axe, "console-"+page.name+"-"+screen.name)
		}
	}
	key, err := os.ReadFile(filepath.Join(empty.Dir, "admin.key"))
	testkit.NoError(t, err)
	first := browsertest.Open(t, empty.URL(nodeprocess.Admin))
	first.KeepAxe(axe)
	first.Run(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(first.Base+"/"))
	looksRight(first, axe, "console-login")
	logIn(first, strings.TrimSpace(string(key)))
	first.Expect(`document.querySelector(".first h2").innerText`, "No car has reported yet")
	for _, path := range []string{"/", "/vehicles", "/roads", "/tokens", "/sources", "/operators", "/audit"} {
		turnTo(first, path)
		looksRight(first, axe, "")
	}
	b.StayedHere()
	first.StayedHere()
}

// kept are the pictures for the documentation.
var kept = []string{
	"console-anomaly-light", "console-anomaly-390", "console-vehicle-light", "console-vehicle-dark", "console-vehicle-390",
	"console-roads-light", "console-roads-dark", "console-roads-390",
	"console-tokens-light", "console-tokens-390-dark", "console-login",
}

func looksRight(b *browsertest.Browser, axe, name string) {
	// Then it has drawn its stretches.
	b.Expect(`String([...document.querySelectorAll("[data-map=count]")].every(e => /stretch/.test(e.textContent)))`,
		"true")
	b.Expect(`String(document.documentElement.scrollWidth <= innerWidth)`, "true")
	if *updateScreens {
		for _, k := range kept {
			if k == name {
				b.Fit(1500)
				b.Look("../../docs/screens/" + name + ".png")
			}
		}
	}
	b.Eval(`document.querySelectorAll("details").forEach(d => d.open = true); ""`)
	b.Expect(`String(document.documentElement.scrollWidth <= innerWidth)`, "true")
	b.IsClean(axe)
}

// Updates of a hidden page would occupy one of the few connections of a host in the browser.
func TestConsolePageInTheBackground(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	b := f.open()
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector("#live").innerText`, "Live")
	hide := func(hidden string) {
		b.Eval(`Object.defineProperty(document, "hidden", {configurable: true, get: () => ` + hidden +
			`}); document.dispatchEvent(new Event("visibilitychange")); ""`)
	}
	pages := func(want string) {
		t.Helper()
		b.Expect(`(() => {
			const x = new XMLHttpRequest();
			x.open("GET", "/metrics", false);
			x.send();
			return (x.responseText.match(/^carstate_console_live_pages (.*)$/m) || [])[1] || "";
		})()`, want)
	}
	pages("1")
	hide("true")
	b.Expect(`document.querySelector("#live").innerText`, "Paused")
	pages("0")
	f.drive("WDB1110000P0000003", 60, "")
	hide("false")
	b.Expect(`document.querySelector("#live").innerText`, "Live")
	b.Expect(`document.querySelector(".tiles dd").innerText`, "3")
	b.StayedHere()
}

func fleetPage(base, key string) (string, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Jar: jar}
	resp, err := client.PostForm(base+"/login", url.Values{"key": {key}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	return string(page), err
}

// The cars in trouble are listed, although none has reported yet.
func TestConsoleAfterARestart(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	listed := func(p *process) error {
		page, err := fleetPage(p.URL(nodeprocess.Admin), f.adminKey)
		if err != nil {
			return err
		}
		for _, want := range []string{"<h1>Fleet</h1>", `/vehicles/` + carInJam + `"`, "raffic jam: ",
			`/vehicles/` + carWithCode + `"`, "P0121"} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("%s is not on the page:\n%s", want, page)
			}
		}
		return nil
	}
	testkit.NoError(t, until(30*time.Second, func() error { return listed(f.process) }))
	f.stop(t)
	again := start(t, f.Dir)
	testkit.NoError(t, until(30*time.Second, func() error { return listed(again) }))
}
