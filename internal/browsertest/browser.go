// Package browsertest lets tests use pages in a real Chromium, as a reader would.
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

	"carstate/internal/testkit"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	traffic "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Browser is a tab of a real browser that complains to the test.
type Browser struct {
	t    *testing.T
	ctx  context.Context
	Base string

	mu         sync.Mutex // guards what the browser's events say
	complaints []string
	asked      []string // addresses
	referers   []string
}

// patience is how long a busy machine may take; nothing waits that long that
// works.
const patience = testkit.Patience

// Open opens a tab for the pages below base, and closes it with the test.
func Open(t *testing.T, base string) *Browser {
	t.Helper()
	testkit.Slow(t, "it starts a browser")
	name, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium: apt-get install -y chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(name))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which refuses to run as root
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience) // t.Context ends before the clean-up
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b := &Browser{t: t, ctx: ctx, Base: base}
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
	b.Prefer("light")
	return b
}

// hear notes what the browser says while it works.
func (b *Browser) hear(event any) {
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
			b.referers = append(b.referers, from)
		}
	}
}

func (b *Browser) Run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the browser says %q", err, b.said())
	}
}

// call runs a command of the browser's protocol.
func call[P, R any](b *Browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

// Prefer says which colours the reader likes. Nothing moves by itself, so that a
// click does not miss what is scrolling.
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

// Complains waits until the browser has complained of something, and takes the complaint.
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
		b.Eval(`""`) // a turn of the browser
	}
	b.t.Fatalf("the browser does not complain of %s, but says %q", text, b.said())
}

func (b *Browser) Press(keys string) {
	b.t.Helper()
	b.Run(chromedp.KeyEvent(keys))
}

// TabTo presses the Tab key until the focus is where the expression wants it.
func (b *Browser) TabTo(where string) {
	b.t.Helper()
	for range 80 {
		b.Press(kb.Tab)
		if b.Eval("String("+where+")") == "true" {
			return
		}
	}
	b.t.Fatalf("the Tab key does not lead to where %s", where)
}

// Eval returns the value of an expression that is a string, or will be one.
func (b *Browser) Eval(expression string) string {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v; the browser says %q", expression, err, b.said())
	}
	return value
}

// Expect waits until an expression has a value. On a page that is being left or
// loaded it may have none yet.
func (b *Browser) Expect(expression, want string) {
	b.t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end) && b.ctx.Err() == nil; {
		value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
		if err != nil {
			value = err.Error()
		} else if value == want {
			return
		}
		got = value
	}
	b.t.Fatalf("%s is\n%q, not\n%q; the browser says %q", expression, got, want, b.said())
}

// IsClean runs axe-core over the page as it is.
func (b *Browser) IsClean(axe string) {
	b.t.Helper()
	b.Run(chromedp.Evaluate[chromedp.Void](axe))
	if v := b.Eval(`axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + "\n" + v.nodes.map(n => "  " + n.target + " " + n.failureSummary).join("\n")).join("\n"))`); v != "" {
		b.t.Errorf("axe finds\n%s", v)
	}
}

// StayedHere reports what the browser complained of, and every request that
// went elsewhere.
func (b *Browser) StayedHere() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser says: %s", c)
	}
	for _, url := range b.asked {
		if !strings.HasPrefix(url, b.Base+"/") && !strings.HasPrefix(url, "data:image/") {
			b.t.Errorf("the page asks %.80s", url)
		}
	}
}

// SentNoReferer reports every request that said where it came from.
func (b *Browser) SentNoReferer() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, from := range b.referers {
		b.t.Errorf("a request carries the Referer %.80s", from)
	}
}

// Fit makes the window as high as the page on it, within a limit.
func (b *Browser) Fit(limit int64) {
	b.t.Helper()
	var width, height int64
	size := b.Eval(`innerWidth + " " + document.documentElement.getBoundingClientRect().height.toFixed()`)
	if _, err := fmt.Sscan(size, &width, &height); err != nil {
		b.t.Fatalf("the page's size is %q", size)
	}
	b.Run(chromedp.EmulateViewport(width, min(height, limit)))
}

// maxPicture is how many bytes a screenshot of the documents may have.
const maxPicture = 400_000

// Look keeps what the reader sees in a file.
func (b *Browser) Look(file string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if len(png) > maxPicture {
		b.t.Fatalf("%s would have %d bytes: show less of the page", file, len(png))
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
	fmt.Printf("%s: %d bytes\n", file, len(png))
}
