package query_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.org/carstate/internal/test/browsertest"
)

var updateScreens = flag.Bool("screens", false, "update the screenshots in docs/")

var screens = []struct {
	name          string
	width, height int64
	scheme        string
	from          string // the element at the top
}{
	{"page-light", 1280, 1560, "light", "body"},
	{"page-dark", 1280, 1560, "dark", "#try"},
	{"page-390", 390, 844, "light", "#try"},
	{"page-390-dark", 390, 844, "dark", "#throttle-system"},
}

// The keyboard alone is enough. All sizes share a browser, whose start takes a second of CPU.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := start(t, f.Config)
	axe := browsertest.Axe(t)
	b := browsertest.Open(t, "http://"+r.addr)
	for _, screen := range screens {
		t.Log(screen.name)
		b.Prefer(screen.scheme)
		b.Run(chromedp.EmulateViewport(screen.width, screen.height), chromedp.Navigate(b.Base+"/"))
		b.Press(kb.Tab)
		b.Press(kb.Enter)
		b.Expect(`document.activeElement.id`, "content")
		b.TabTo(`document.activeElement.id === "token"`)
		b.Press(f.secrets["SANDBOX"])
		b.Expect(`getComputedStyle(document.activeElement).webkitTextSecurity`, "disc")
		b.TabTo(`document.activeElement.dataset.field === "vehicle_runing_state"`)
		b.Press(kb.Enter)
		b.Expect(`document.querySelector("#verdict").innerText`, "Traffic jam (3)\nas of 0 s ago")
		b.Expect(`document.querySelector("#body").innerText`, "{\n  \"code\": 200,\n  \"msg\": \"success\",\n"+
			"  \"data\": {\n    \"vid\": \"SandboxJam\",\n    \"status\": 1,\n"+
			"    \"vehicle_runing_state\": \"3\"\n  }\n}")
		b.Expect(`String(document.querySelector("#verdict").getBoundingClientRect().bottom <= innerHeight)`, "true")
		b.TabTo(`document.activeElement.dataset.field === "throttle_system"`)
		b.Press(" ")
		b.Expect(`document.querySelector("#verdict").innerText`, "Throttle normal (1)\nas of 0 s ago")
		b.Expect(`document.querySelector("#request").innerText`, "GET "+throttlePath+"?access_token=…&vid=SandboxJam")
		if !strings.Contains(b.Eval(`document.querySelector("#head").textContent`), "x-request-id: ") {
			t.Error("the headers of the answer: got none shown, want x-request-id")
		}

		// Open all details for axe.
		b.TabTo(`document.activeElement.getAttribute("role") === "tab"`)
		b.Press(kb.ArrowRight)
		b.Expect(`[...document.querySelectorAll("[role=tab][aria-selected=true]")].map(t => t.innerText).join()`,
			"Go,Go")
		b.Expect(`String(document.querySelector("[role=tabpanel]:not([hidden])").innerText.includes("`+
			b.Base+drivingPath+`"))`, "true")
		b.Eval(`scrollTo(0, document.querySelector("` + screen.from + `").offsetTop - 60); ""`)
		if *updateScreens {
			b.Look("../../docs/screens/" + screen.name + ".png")
		}
		b.Eval(`document.querySelectorAll("details").forEach(d => d.open = true); ""`)
		b.Expect(`String(document.documentElement.scrollWidth <= innerWidth)`, "true")
		b.IsClean(axe)

		keepsNothing(t, b, f.secrets["SANDBOX"])
		b.Run(chromedp.Navigate(b.Base + "/openapi.json"))
		b.Eval(`history.back(); ""`)
		b.Expect(`location.pathname`, "/")
		b.Expect(`document.querySelector("#token").value`, "")
		b.StayedHere()
		b.SentNoReferer()
	}
}

func TestPage_ShowsErrors(t *testing.T) {
	f := newFixture(t)
	r := start(t, f.Config)
	b := browsertest.Open(t, "http://"+r.addr)
	b.Run(chromedp.Navigate(b.Base + "/?access_token=" + f.secrets["SANDBOX"] + "#try"))
	b.Expect(`location.search + location.hash`, "#try")
	for _, c := range []struct{ token, vid, want string }{
		{"", "SandboxJam",
			"refused: 401: refused\ninvalid_token: access_token is empty: give the token that was issued to you"},
		{f.secrets["SANDBOX"], "a-b",
			"refused: 400: refused\ninvalid_request: vid holds a dash: a vehicle id consists of ASCII letters and digits only"},
		{f.secrets["TOKEN"], "CarJam", "jam: Traffic jam (3)\nas of 2 s ago"},
		{f.secrets["SANDBOX"], "CarJam",
			"none: No answer\nunknown: the vehicle is unknown, or not granted to this token. " +
				"A sandbox token (cstest_…) sees only vehicles of the sandbox, such as SandboxJam"},
		{f.secrets["SANDBOX"], "sandboxjam",
			"none: No answer\nunknown: the vehicle is unknown, or not granted to this token. Did you mean SandboxJam?"},
		{f.secrets["SANDBOX"], "SandboxUnknown",
			"none: No answer\nunknown: the vehicle is unknown, or not granted to this token"},
		{f.secrets["SANDBOX"], "SandboxParked", "none: No answer\nnot_driving: the car is not driving"},
		{f.secrets["TOKEN"], "SandboxSlow",
			"none: No answer\nunknown: the vehicle is unknown, or not granted to this token. " +
				"Only a sandbox token (cstest_…) sees this vehicle of the sandbox"},
		{f.secrets["TOKEN"], "Nobody", "none: No answer\nunknown: the vehicle is unknown, or not granted to this token"},
		{f.secrets["TOKEN"], "CarOld", "none: No answer\nstale: the newest readings are too old"},
		{f.secrets["TOKEN"], "CarParked", "none: No answer\nnot_driving: the car is not driving"},
		{f.secrets["SANDBOX"], "SandboxRateLimited",
			"refused: 429: refused\nrate_limited: the policy of this token allows 60 calls in 60 s: wait 1 s"},
		{f.secrets["SANDBOX"], "SandboxUnavailable",
			"refused: 503: refused\nunavailable: the service is starting or has lost contact with its data: try again later"},
	} {
		b.Eval(fmt.Sprintf(`document.querySelector("#token").value = %q; document.querySelector("#vid").value = %q`,
			c.token, c.vid))
		b.Run(chromedp.Click(chromedp.CSS(".primary")))
		b.Expect(`(v => v.className + ": " + v.innerText)(document.querySelector("#verdict"))`, c.want)
	}
	keepsNothing(t, b, f.secrets["SANDBOX"])
}

// Neither the browser's storage nor the address nor the page keeps the token.
func keepsNothing(t *testing.T, b *browsertest.Browser, token string) {
	t.Helper()
	b.Expect(`JSON.stringify([localStorage.length, sessionStorage.length, document.cookie, location.search])`,
		`[0,0,"",""]`)
	b.Expect(`indexedDB.databases().then(d => String(d.length))`, "0")
	if strings.Contains(b.Eval(`document.querySelector("main").innerText`), token) {
		t.Error("the page's text: got the token in it, want it not")
	}
}
