package query

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	traffic "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var updateScreens = flag.Bool("screens", false, "take the screenshots in docs/ anew")

// screens are the ways in which a reader may look at the page.
var screens = []struct {
	name          string
	width, height int64
	scheme        string
	from          string // what the screenshot begins with
}{
	{"page-light", 1280, 1560, "light", "body"},
	{"page-dark", 1280, 1560, "dark", "#try"},
	{"page-390", 390, 844, "light", "#try"},
	{"page-390-dark", 390, 844, "dark", "#throttle-system"},
}

// TestPageInABrowser uses the page as a reader does who has a keyboard and no
// mouse: finds the form, types a token, asks both questions, reads the answers.
func TestPageInABrowser(t *testing.T) {
	f := newFixture(t)
	r := start(t, f.Config)
	axe := axeSource(t)
	for _, screen := range screens {
		t.Run(screen.name, func(t *testing.T) {
			b := openBrowser(t, "http://"+r.addr)
			b.prefer(screen.scheme)
			b.run(chromedp.EmulateViewport(screen.width, screen.height), chromedp.Navigate(b.base+"/"))
			b.press(kb.Tab)
			b.press(kb.Enter)
			b.expect(`document.activeElement.id`, "content")
			b.tabTo(`document.activeElement.id === "token"`)
			b.press(f.secrets["SANDBOX"])
			b.expect(`getComputedStyle(document.activeElement).webkitTextSecurity`, "disc")
			b.tabTo(`document.activeElement.dataset.field === "vehicle_runing_state"`)
			b.press(kb.Enter)
			b.expect(`document.querySelector("#verdict").innerText`, "Traffic jam (3)\nas of 0 s ago")
			b.expect(`document.querySelector("#body").innerText`, "{\n  \"code\": 200,\n  \"msg\": \"success\",\n  \"data\": {\n    \"vid\": \"SandboxJam\",\n    \"status\": 1,\n    \"vehicle_runing_state\": \"3\"\n  }\n}")
			b.tabTo(`document.activeElement.dataset.field === "throttle_system"`)
			b.press(" ")
			b.expect(`document.querySelector("#verdict").innerText`, "Throttle normal (1)\nas of 0 s ago")
			b.expect(`document.querySelector("#request").innerText`, "GET "+throttlePath+"?access_token=…&vid=SandboxJam")
			if !strings.Contains(b.eval(`document.querySelector("#head").textContent`), "x-request-id: ") {
				t.Error("the headers of the answer are not shown")
			}

			// Another language for the samples, then everything that can be
			// opened, for the eyes of axe.
			b.tabTo(`document.activeElement.getAttribute("role") === "tab"`)
			b.press(kb.ArrowRight)
			b.expect(`[...document.querySelectorAll("[role=tab][aria-selected=true]")].map(t => t.innerText).join()`, "Go,Go")
			b.expect(`String(document.querySelector("[role=tabpanel]:not([hidden])").innerText.includes("`+b.base+drivingPath+`"))`, "true")
			b.eval(`scrollTo(0, document.querySelector("` + screen.from + `").offsetTop - 60); ""`)
			b.look(screen.name)
			b.eval(`document.querySelectorAll("details").forEach(d => d.open = true); ""`)
			b.expect(`String(document.documentElement.scrollWidth <= innerWidth)`, "true")
			b.isClean(axe)

			b.keepsNothing(f.secrets["SANDBOX"])
			b.run(chromedp.Navigate(b.base + "/reference/"))
			b.eval(`history.back(); ""`)
			b.expect(`location.pathname`, "/")
			b.expect(`document.querySelector("#token").value`, "")
			b.stayedHere()
		})
	}
}

// TestPageSaysWhatIsWrong asks what is refused, and what has no answer.
func TestPageSaysWhatIsWrong(t *testing.T) {
	f := newFixture(t)
	r := start(t, f.Config)
	b := openBrowser(t, "http://"+r.addr)
	b.run(chromedp.Navigate(b.base + "/?access_token=" + f.secrets["SANDBOX"] + "#try"))
	b.expect(`location.search + location.hash`, "#try")
	for _, c := range []struct{ token, vid, want string }{
		{"", "SandboxJam", "401: refused\ninvalid_token: access_token is empty: give the token that was issued to you"},
		{f.secrets["SANDBOX"], "a-b", "400: refused\ninvalid_request: vid holds a dash: a vehicle id consists of ASCII letters and digits only"},
		{f.secrets["TOKEN"], "CarJam", "Traffic jam (3)\nas of 2 s ago"},
		{f.secrets["SANDBOX"], "CarJam", "No answer\nunknown: the vehicle is unknown, or not granted to this token"},
		{f.secrets["TOKEN"], "CarOld", "No answer\nstale: the newest readings are too old"},
		{f.secrets["TOKEN"], "CarParked", "No answer\nnot_driving: the car is not driving"},
		{f.secrets["SANDBOX"], "SandboxRateLimited", "429: refused\nrate_limited: the policy of this token allows 60 calls in 60 s: wait as many seconds as Retry-After says"},
		{f.secrets["SANDBOX"], "SandboxUnavailable", "503: refused\nunavailable: the service is starting or out of touch with its data: try again later"},
	} {
		b.eval(fmt.Sprintf(`document.querySelector("#token").value = %q; document.querySelector("#vid").value = %q`, c.token, c.vid))
		b.run(chromedp.Click(chromedp.CSS(".primary")))
		b.expect(`document.querySelector("#verdict").innerText`, c.want)
	}
	b.keepsNothing(f.secrets["SANDBOX"])
}

// TestReferenceInABrowser asks from the reference, as its reader would.
func TestReferenceInABrowser(t *testing.T) {
	f := newFixture(t)
	r := start(t, f.Config)
	b := openBrowser(t, "http://"+r.addr)
	b.run(
		chromedp.EmulateViewport(1280, 1400),
		chromedp.Navigate(b.base+"/reference/"),
		chromedp.Click(chromedp.CSS(".btn.authorize")),
		chromedp.SendKeys(chromedp.CSS(".auth-container input"), f.secrets["SANDBOX"]),
		chromedp.Click(chromedp.CSS(".auth-btn-wrapper .authorize")),
		chromedp.Click(chromedp.CSS(".btn-done")),
		chromedp.Click(chromedp.CSS(".opblock-summary-control")),
		// Swagger UI resolves an operation once it is opened, and cannot ask
		// before it has: only then the refusals have their descriptions.
		chromedp.WaitVisible(chromedp.CSS(`.response[data-code="503"] .renderedMarkdown p`)),
		chromedp.Click(chromedp.CSS(".execute")),
		chromedp.WaitVisible(chromedp.CSS(".live-responses-table tbody .response-col_status")),
	)
	b.expect(`String(document.querySelectorAll(".opblock").length)`, "2")
	b.expect(`document.querySelector(".live-responses-table tbody .response-col_status").innerText.trim()`, "200")
	if body := b.eval(`document.querySelector(".live-responses-table .highlight-code").innerText`); !strings.Contains(body, `"vehicle_runing_state": "3"`) {
		t.Errorf("the answer reads %s", body)
	}
	b.keepsNothing(f.secrets["SANDBOX"])
	b.run(chromedp.Navigate(b.base+"/reference/"), chromedp.WaitVisible(chromedp.CSS(".opblock")))
	b.look("reference")
	b.stayedHere()
}

// browser is a tab of a real browser that complains to the test.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu         sync.Mutex // guards what the browser's events say
	complaints []string
	asked      []string // addresses
}

func openBrowser(t *testing.T, base string) *browser {
	t.Helper()
	name, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium: apt-get install -y chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(name), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which refuses to run as root
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // t.Context ends before the clean-up
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b := &browser{t: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("the browser does not close: %v", err)
		}
		cancel()
	})
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	call(b, traffic.Enable, traffic.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	b.prefer("light")
	return b
}

// hear notes what the browser says while it works.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("%s on the console: %s", e.Type, e.Args[0].Description))
	case *log.EventEntryAdded: // violations of the policy among them
		if !strings.Contains(e.Entry.Text, "the server responded with a status of ") {
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *traffic.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
		if from, _ := e.Request.Headers["Referer"].(string); from != "" {
			b.complaints = append(b.complaints, "a request carries the Referer "+from)
		}
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the browser says %q", err, b.said())
	}
}

// call runs a command of the browser's protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

// prefer says which colours the reader likes. Nothing moves by itself, so that a
// click does not miss what is scrolling.
func (b *browser) prefer(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

func (b *browser) press(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// tabTo presses the Tab key until the focus is where the expression wants it.
func (b *browser) tabTo(where string) {
	b.t.Helper()
	for range 80 {
		b.press(kb.Tab)
		if b.eval("String("+where+")") == "true" {
			return
		}
	}
	b.t.Fatalf("the Tab key does not lead to where %s", where)
}

// eval returns the value of an expression that is a string, or will be one.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v; the browser says %q", expression, err, b.said())
	}
	return value
}

// expect waits until an expression has a value.
func (b *browser) expect(expression, want string) {
	b.t.Helper()
	var got string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if got = b.eval(expression); got == want {
			return
		}
	}
	b.t.Fatalf("%s is\n%q, not\n%q; the browser says %q", expression, got, want, b.said())
}

// isClean runs axe-core over the page as it is.
func (b *browser) isClean(axe string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](axe))
	if v := b.eval(`axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + "\n" + v.nodes.map(n => "  " + n.target + " " + n.failureSummary).join("\n")).join("\n"))`); v != "" {
		b.t.Errorf("axe finds\n%s", v)
	}
}

// keepsNothing looks for the token wherever a page can leave something.
func (b *browser) keepsNothing(token string) {
	b.t.Helper()
	b.expect(`JSON.stringify([localStorage.length, sessionStorage.length, document.cookie, location.search])`, `[0,0,"",""]`)
	b.expect(`indexedDB.databases().then(d => String(d.length))`, "0")
	if text := b.eval(`document.querySelector("main").innerText`); strings.Contains(text, token) && !strings.Contains(text, "Curl") {
		b.t.Error("the token stands in the page's text")
	}
}

// stayedHere reports what the browser complained of, and every request that
// went elsewhere.
func (b *browser) stayedHere() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser says: %s", c)
	}
	for _, url := range b.asked {
		if !strings.HasPrefix(url, b.base+"/") && !strings.HasPrefix(url, "data:image/") {
			b.t.Errorf("the page asks %.80s", url)
		}
	}
}

// look keeps a screenshot, if the flag asks for it.
func (b *browser) look(name string) {
	b.t.Helper()
	if !*updateScreens {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join("../../docs/screens", name+".png")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
	fmt.Printf("%s: %d bytes\n", file, len(png))
}
