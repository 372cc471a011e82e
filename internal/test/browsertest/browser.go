// Package browsertest tests pages in a real Chromium.
package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/testkit"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	traffic "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Browser is a tab. Its methods fail the test on an error.
type Browser struct {
	t    *testing.T
	ctx  context.Context
	Base string

	mu         sync.Mutex // guards the fields below
	complaints []string
	asked      []string // addresses of all requests
	referers   []string
}

const patience = testkit.Patience

func Open(t *testing.T, base string) *Browser {
	t.Helper()
	testkit.Slow(t, "it starts a browser")
	name, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium: apt-get install -y chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(name))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox refuses to run as root
	}
	// t.Context ends before the cleanup functions run.
	limited, cancel := context.WithTimeout(context.Background(), 10*patience)
	t.Cleanup(cancel)
	b := &Browser{t: t, Base: base}
	start := func() error {
		ctx, cancel := chromedp.NewExecAllocator(limited, options...)
		t.Cleanup(cancel)
		b.ctx, cancel = chromedp.NewContext(ctx)
		t.Cleanup(cancel)
		return chromedp.Listen(b.ctx, b.hear)
	}
	if start() != nil { // It may crash.
		testkit.NoError(t, start())
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(b.ctx); err != nil {
			t.Errorf("the end of the browser: got %v, want no error", err)
		}
	})
	call(b, traffic.Enable, traffic.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	b.Prefer("light")
	return b
}

// hear ignores that an answer has an error status: tests provoke such answers.
func (b *Browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("%s on the console: %s", e.Type, e.Args[0].Description))
	case *log.EventEntryAdded: // includes violations of the content security policy
		if !strings.Contains(e.Entry.Text, "the server responded with a status of ") {
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *traffic.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
		if from, _ := e.Request.Headers["Referer"].(string); from != "" {
			b.referers = append(b.referers, from)
		}
	}
}

func (b *Browser) Run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("the browser: got %v, want no error; it logged %q", err, b.said())
	}
}

func call[P, R any](b *Browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatalf("%s: got %v, want no error", command.Method, err)
	}
}

// scheme is "light" or "dark". Animations are off, so that a click does not miss an element that is
// scrolling.
func (b *Browser) Prefer(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

func (b *Browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

// Complains waits for an expected error, and removes it from those of StayedHere.
func (b *Browser) Complains(text string) {
	b.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end) && b.ctx.Err() == nil; {
		b.mu.Lock()
		i := slices.IndexFunc(b.complaints, func(c string) bool { return strings.Contains(c, text) })
		if i >= 0 {
			b.complaints = slices.Delete(b.complaints, i, i+1)
		}
		b.mu.Unlock()
		if i >= 0 {
			return
		}
		b.pause()
	}
	b.t.Fatalf("the browser's log: got %q, want %q", b.said(), text)
}

func (b *Browser) Press(keys string) {
	b.t.Helper()
	b.Run(chromedp.KeyEvent(keys))
}

// where is a JavaScript expression.
func (b *Browser) TabTo(where string) {
	b.t.Helper()
	for range 80 {
		b.Press(kb.Tab)
		if b.Eval("String("+where+")") == "true" {
			return
		}
	}
	b.t.Fatalf("the Tab key: got no element with %s, want one", where)
}

// Eval returns the value of a JavaScript expression, or of its promise, as text.
func (b *Browser) Eval(expression string) string {
	b.t.Helper()
	value, err := b.eval(expression)
	if err != nil {
		b.t.Fatalf("%.200s: got %v, want a value; the browser logged %q", expression, err, b.said())
	}
	return value
}

func (b *Browser) eval(expression string) (string, error) {
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](expression, chromedp.EvalAwaitPromise))
	return fmt.Sprint(value), err
}

// Expect waits until Eval returns want; until then, the expression may fail.
func (b *Browser) Expect(expression, want string) {
	b.t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end) && b.ctx.Err() == nil; b.pause() {
		value, err := b.eval(expression)
		if err != nil {
			value = err.Error()
		} else if value == want {
			return
		}
		got = value
	}
	b.t.Fatalf("%s: got\n%q, want\n%q; the browser logged %q", expression, got, want, b.said())
}

func Axe(t *testing.T) string {
	t.Helper()
	testkit.Slow(t, "it needs axe-core, for a browser")
	script, err := os.ReadFile("../../.cache/npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v (make setup installs it)", err)
	}
	return string(script)
}

func (b *Browser) pause() { _ = periodic.Pause(b.ctx, 25*time.Millisecond) }

// KeepAxe adds the script to every page opened later, so that [Browser.IsClean] need not send its
// 0.6 MB.
func (b *Browser) KeepAxe(axe string) {
	b.t.Helper()
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: axe})
}

func (b *Browser) IsClean(axe string) {
	b.t.Helper()
	if b.Eval(`typeof window.axe`) == "undefined" {
		b.Run(chromedp.Evaluate[chromedp.Void](axe))
	}
	if v := b.Eval(`axe.run({resultTypes: ["violations"]}).then(r => r.violations.map(v => v.id + ": " + v.help + "\n" +
		v.nodes.map(n => "  " + n.target + " " + n.failureSummary).join("\n")).join("\n"))`); v != "" {
		b.t.Errorf("axe: got\n%s\nwant nothing", v)
	}
}

// StayedHere fails if the browser has logged an error, or sent a request elsewhere.
func (b *Browser) StayedHere() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser's log: got %s, want nothing", c)
	}
	for _, url := range b.asked {
		if !strings.HasPrefix(url, b.Base+"/") && !strings.HasPrefix(url, "data:image/") {
			b.t.Errorf("the page: got a request of %.80s, want it within %s", url, b.Base)
		}
	}
}

func (b *Browser) SentNoReferer() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, from := range b.referers {
		b.t.Errorf("a request: got the Referer %.80s, want none", from)
	}
}

func (b *Browser) Fit(limit int64) {
	b.t.Helper()
	var width, height int64
	size := b.Eval(`innerWidth + " " + document.documentElement.getBoundingClientRect().height.toFixed()`)
	if _, err := fmt.Sscan(size, &width, &height); err != nil {
		b.t.Fatalf("the page's size: got %q, want a width and a height", size)
	}
	b.Run(chromedp.EmulateViewport(width, min(height, limit)))
}

// In bytes.
const maxPicture = 400_000

// Look saves the visible part of the page as PNG.
func (b *Browser) Look(file string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	testkit.NoError(b.t, err)
	if len(png) > maxPicture {
		b.t.Fatalf("%s: got %d bytes, want %d at most: show less of the page", file, len(png), maxPicture)
	}
	testkit.NoError(b.t, os.MkdirAll(filepath.Dir(file), 0o755))
	testkit.NoError(b.t, os.WriteFile(file, png, 0o644))
	fmt.Printf("%s: %d bytes\n", file, len(png))
}
