package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.org/carstate/internal/browsertest"
)

const carWithFault = "WDB1110000P0000004"

// breakPlate sends four minutes of readings, with a fault that begins 40 seconds before now.
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
		f.t.Fatalf("%d accepted, %v", n, err)
	}
}

// The chart of a throttle anomaly has the allowed band and the alarm, and shows values where the
// mouse or the keyboard points.
func TestConsoleChartsTellTheirFigures(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	f.breakPlate()
	b := f.open()
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector("h1").innerText`, "Fleet")
	b.Run(chromedp.Navigate(b.Base + "/vehicles/" + carWithFault))
	const chart = `document.querySelector("[data-live=throttle] .plot")`
	b.Expect(`String(!!document.querySelector("[data-live=throttle] .plot .allowed") && `+
		`!!document.querySelector("[data-live=throttle] .plot .alarm"))`, "true")
	b.Expect(chart+`.querySelector("[data-readout]").textContent`, "Times are UTC.")

	// A live update may replace the chart after the mouse has moved, so the mouse moves again with
	// each try.
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
