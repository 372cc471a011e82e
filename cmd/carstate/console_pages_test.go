package main_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/browsertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func TestConsoleVehiclesByKeyboard(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	axe := browsertest.Axe(t)
	b := f.open()
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector(".tiles").innerText.includes("Throttle anomaly\n1")`, "true")
	strips := `[...document.querySelectorAll(".cars [data-hour]")].map(e => e.dataset.hour.split("/")[2] + ` +
		`(e.querySelector("svg") ? " svg" : " " + e.innerText)).join(", ")`
	b.Expect(strips, carInJam+" svg, "+carWithCode+" one reading")
	b.Eval(`for (const part of document.querySelectorAll("[data-live=jam], [data-live=anomaly]")) {
		fill(part, part.innerHTML.replace(/(<div data-hour[^>]*>).*?<\/div>/gs, "$1</div>"));
	}
	window.fetch = () => Promise.reject(new Error("requested again")); ""`)
	if got, want := b.Eval(strips), carInJam+" svg, "+carWithCode+" one reading"; got != want {
		t.Errorf("after a live update: got %s, want %s", got, want)
	}
	b.Eval(`document.querySelector('.tiles a[href$="/vehicles?throttle=anomaly"]').focus(); ""`)
	b.Press(kb.Enter)
	shown := `[...document.querySelectorAll("tbody .vid")].map(e => e.innerText).join(" ")`
	b.Expect(`location.search`, "?throttle=anomaly")
	b.Expect(shown, carWithCode)
	b.Expect(`document.querySelector("#list-h").innerText`, "Chosen vehicles 1")
	b.Expect(`document.querySelector("tbody .why").innerText.includes("P0121")`, "true")
	b.Expect(`document.querySelector("#throttle").value`, "anomaly")

	b.TabTo(`document.activeElement.id === "is"`)
	b.Press("traffic")
	b.TabTo(`document.activeElement.id === "throttle"`)
	b.Press("any")
	b.TabTo(`document.activeElement.innerText === "Show"`)
	b.Press(kb.Enter)
	b.Expect(`document.querySelector("#is").value + " " + document.querySelector("#throttle").value`, "jam ")
	b.Expect(shown, carInJam)
	turnTo(b, "/vehicles")
	b.Expect(`location.search + document.querySelectorAll("tbody .vid").length`, "3")
	b.Expect(`document.querySelector("tbody .vid").innerText`, carWithCode) // the most urgent first
	b.Expect(`String([...document.querySelectorAll("[data-hour]")].every(e => e.innerHTML !== ""))`, "true")
	b.Expect(`String(/^traffic jam \d\d:\d\d to \d\d:\d\d, .* UTC/.test(`+
		`document.querySelector('[data-hour$="`+carInJam+`/hour"] svg').getAttribute("aria-label")))`, "true")
	b.Expect(`String(document.querySelectorAll('[data-hour$="`+carInJam+`/hour"] rect.jam').length > 0)`, "true")
	b.Expect(`document.querySelector('[data-hour$="`+carWithCode+`/hour"]').innerText`, "one reading")
	b.IsClean(axe)
	b.TabTo(`document.activeElement.id === "prefix"`)
	b.Press("WDB")
	b.Press(kb.Enter)
	b.Expect(shown, carWithCode+" "+carOnRoad)
	b.Expect(`(() => {
		const x = new XMLHttpRequest();
		x.open("GET", document.querySelector("a[download]").href, false);
		x.send();
		return x.responseText.split("\n").slice(1).map(line => line.split(",")[0]).filter(vid => vid !== "").sort().join(" ");
	})()`, carOnRoad+" "+carWithCode)
	for _, path := range []string{"/vehicles?prefix=WDB", "/vehicles?reason=unknown", "/vehicles?sort=oldest",
		"/vehicles?is=fast"} {
		for _, width := range []int64{1280, 390} {
			b.Prefer(map[int64]string{1280: "light", 390: "dark"}[width])
			b.Run(chromedp.EmulateViewport(width, 900))
			turnTo(b, path)
			looksRight(b, axe, "")
		}
	}

	out := f.carstate(t, "vehicles", "--admin-addr", f.Address(nodeprocess.Admin), "--prefix", "WDB", "--sort", "newest")
	if !strings.Contains(out, carWithCode) || !strings.Contains(out, carOnRoad) || strings.Contains(out, carInJam) {
		t.Errorf("vehicles --prefix WDB: got\n%s\nwant %s and %s, not %s", out, carWithCode, carOnRoad, carInJam)
	}
}

const carWithFault = "WDB1110000P0000004"

// breakPlate sends four minutes of readings, with a fault in the last 40 seconds.
func (f *consoleFixture) breakPlate() {
	f.t.Helper()
	var lines []string
	for i := range 480 {
		command, plate := 4+i/20%3*5, 10+i/20%3*5
		if i >= 400 {
			command, plate = 4, 60
		}
		at := time.Now().Add(time.Duration(i-480) * 500 * time.Millisecond)
		lines = append(lines, fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50,`+
			`"Vehicle.OBD.ThrottleActuator":%d,"Vehicle.OBD.ThrottlePosition":%d}}`,
			carWithFault, at.UnixMilli(), command, plate))
	}
	if n, err := postLines(f.process, f.source, strings.Join(lines, "\n")); n != len(lines) || err != nil {
		f.t.Fatalf("telemetry of %s: got %d accepted, %v, want %d", carWithFault, n, err, len(lines))
	}
}

// The chart of a throttle anomaly has the allowed band and the alarm, and shows values at the mouse
// or for the keyboard.
func TestConsoleChartsTellTheirFigures(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	f.breakPlate()
	b := f.open()
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector("h1").innerText`, "Fleet")
	const chart = `document.querySelector("[data-live=throttle] .plot")`
	drawn := `String(!!` + chart + `?.querySelector(".allowed") && !!` + chart + `?.querySelector(".alarm"))`
	for end := time.Now().Add(testkit.Patience); time.Now().Before(end) && b.Eval(drawn) != "true"; { // not read in time
		b.Run(chromedp.Navigate(b.Base + "/vehicles/" + carWithFault))
	}
	b.Expect(drawn, "true")
	b.Expect(chart+`.querySelector("[data-readout]").textContent`, "Times are UTC.")

	// A live update may replace the chart after the mouse has moved.
	b.Expect(`(() => { const svg = `+chart+`.querySelector("svg"), r = svg.getBoundingClientRect();
		svg.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: r.right - 1, clientY: r.top + 9}));
		const text = `+chart+`.querySelector("[data-readout]").textContent;
		return text.replace(/\d\d:\d\d:\d\d/, "TIME").replace(/1\d(\.\d)? %$/, "1x %");
	})()`, "TIME UTC: the command 4 %, plate sensor A 60 %, expected 1x %")
	b.TabTo(`document.activeElement.matches("[data-live=throttle] svg[data-xs]")`)
	b.Press(kb.Home)
	b.Expect(`document.activeElement.getAttribute("aria-valuenow")`, "0")
	b.Press(kb.ArrowRight)
	b.Expect(`document.activeElement.getAttribute("aria-valuenow") + " " + `+
		`(document.activeElement.getAttribute("aria-valuetext") === `+chart+`.querySelector("[data-readout]").textContent)`,
		"1 true")

	b.Expect(`String(document.querySelectorAll(".local").length)`, "0")
	b.Run(chromedp.Click(chromedp.CSS("#local")))
	b.Expect(`String(document.querySelectorAll("time + .local").length > 3)`, "true")
	visit(b, "Fleet")
	b.Expect(`document.querySelector("#local").getAttribute("aria-pressed")`, "true")
	b.IsClean(browsertest.Axe(t))
	b.StayedHere()
}

// Some pictures need many cars.
func TestConsoleScreensOfTheDemo(t *testing.T) {
	if !*updateScreens {
		t.Skip("it takes minutes for screenshots and tests nothing else: make screens")
	}
	d := startDemo(t, plain)
	console := regexp.MustCompile(`Console: (\S+)/ opens with the key in (\S+)`).FindStringSubmatch(d.stdout.String())
	key := strings.TrimSpace(readFile(t, console[2]))
	waiting, done := context.WithTimeout(t.Context(), 15*time.Minute)
	defer done()
	for range periodic.NowAndEvery(waiting, 10*time.Second) {
		page, err := fleetPage(console[1], key)
		testkit.NoError(t, err)
		_, chart, _ := strings.Cut(page, `data-texts="`)
		if chart, _, _ = strings.Cut(chart, `"`); strings.Count(chart, "|") > 5 { // one point per minute
			break
		}
	}

	b := browsertest.Open(t, console[1])
	b.Run(chromedp.EmulateViewport(1280, 1500), chromedp.Navigate(b.Base+"/"))
	logIn(b, key)
	b.Expect(`document.querySelector("h1").innerText`, "Fleet")
	for _, screen := range []struct {
		name   string
		path   string
		width  int64
		scheme string
	}{
		{"fleet-light", "/", 1280, "light"},
		{"fleet-dark", "/", 1280, "dark"},
		{"fleet-390", "/", 390, "light"},
		{"vehicles-light", "/vehicles", 1280, "light"},
	} {
		b.Prefer(screen.scheme)
		b.Run(chromedp.EmulateViewport(screen.width, 1500))
		turnTo(b, screen.path)
		b.Fit(1500)
		b.Expect(`String([...document.querySelectorAll("[data-hour]")].every(e => e.innerHTML !== "" || `+
			`e.getBoundingClientRect().bottom > innerHeight))`, "true")
		b.Look("../../docs/screens/console-" + screen.name + ".png")
	}
	d.end(t)
}
