package main_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.org/carstate/internal/browsertest"
	"example.org/carstate/internal/nodeprocess"
)

func TestConsoleVehiclesByKeyboard(t *testing.T) {
	t.Parallel()
	f := startConsole(t)
	axe := browsertest.Axe(t)
	b := f.open()
	logIn(b, f.adminKey)
	b.Expect(`document.querySelector(".tiles").innerText.includes("Throttle anomaly\n1")`, "true")
	// A live update does not request it again.
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
		t.Errorf("the command lists\n%s", out)
	}
}
