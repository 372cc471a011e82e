package main_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// town has streets in both directions, a ring road and a road out of town. kmh is 0 if no car is
// there now.
func town() (streets []townStreet) {
	const perDegree = 111_195
	middleLatitude, middleLongitude := 44.5, 11.35
	add := func(east, north, heading, metres, free, kmh float64) {
		streets = append(streets, townStreet{roadtest.Street{
			Name: fmt.Sprintf("street%dx", len(streets)), Heading: heading, Metres: metres,
			Latitude:  middleLatitude + north/perDegree,
			Longitude: middleLongitude + east/perDegree/math.Cos(middleLatitude*math.Pi/180),
		}, free, kmh})
	}
	speeds := []float64{41, 0, 26, 44, 12, 38, 0, 47}
	for i := range 4 {
		at := -600 + 400*float64(i)
		add(-1000, at, 90, 2000, 48, speeds[2*i])
		add(1000, at, 270, 2000, 48, speeds[2*i+1])
		add(at, -1000, 0, 2000, 46, speeds[7-2*i])
		add(at, 1000, 180, 2000, 46, speeds[6-2*i])
	}
	for i := range 8 {
		turn := float64(i) * math.Pi / 4
		sin, cos := math.Sincos(turn)
		side := 2 * 1500 * math.Tan(math.Pi/8)
		kmh := []float64{62, 58, 19, 15, 40, 64, 66, 60}[i]
		add(1500*sin-side/2*cos, 1500*cos+side/2*sin, math.Mod(90+45*float64(i), 360), side, 68, kmh)
	}
	add(1500, 100, 90, 1800, 110, 104)
	add(3300, 160, 270, 1800, 110, 31)
	return streets
}

type townStreet struct {
	roadtest.Street
	free, kmh float64
}

// driveTown sends readings in light traffic of the past hours, and then the present ones.
func (f *consoleFixture) driveTown(streets []townStreet) {
	f.t.Helper()
	web := sender.HTTP(f.URL(nodeprocess.Ingest), sender.Login{Name: "gateway-1", Key: f.source}, nil)
	defer web.Close()
	send := func(samples []vehicle.Sample) {
		for len(samples) > 0 {
			n := min(len(samples), 5000)
			testkit.NoError(f.t, web.Send(f.t.Context(), samples[:n]))
			samples = samples[n:]
		}
	}
	now := time.Now()
	for _, s := range streets {
		send(s.Learn(s.free, now))
	}
	for _, s := range streets {
		if s.kmh > 0 { // the last one arrives now
			took := time.Duration(s.Metres / s.kmh * 3.6 * float64(time.Second))
			send(s.Drive("now", 8, s.kmh, now.Add(-took-50*time.Second), 7*time.Second))
		}
	}
}

func TestConsoleRoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &consoleFixture{process: start(t, dir), t: t}
	f.source = f.addSource(t, "gateway-1")
	f.adminKey = adminKeyOf(t, dir)
	b := f.open()
	logIn(b, f.adminKey)
	visit(b, "Roads")
	b.Expect(`document.querySelector(".first h2").innerText`, "No road is known yet")

	jam := townStreet{roadtest.Street{Name: "a", Latitude: 44.5, Longitude: 11.35, Heading: 90, Metres: 1500}, 50, 10}
	f.driveTown([]townStreet{jam})
	b.Expect(`document.querySelector("#live") && document.querySelector("#live").innerText + " " + `+
		`document.querySelectorAll("[data-map=count]").length`, "Live 1")
	b.Expect(`/^\d+ stretches$/.test(document.querySelector("[data-map=count]").textContent)`, "true")
	b.Expect(`document.querySelector("[data-live=worst] tbody tr").innerText.includes("Jam")`, "true")
	// painted counts the pixels of a jam.
	const painted = `(() => {
		const c = document.querySelector("canvas");
		const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", {willReadFrequently: true});
		copy.drawImage(c, 0, 0);
		const d = copy.getImageData(0, 0, c.width, c.height).data;
		let n = 0;
		for (let i = 0; i < d.length; i += 4) if (d[i] === 0xb3 && d[i + 1] === 0x39 && d[i + 2] === 0x2b) n++;
		return n > 50 ? "a jam" : "none: " + n;
	})()`
	b.Expect(painted, "a jam")

	b.TabTo(`document.activeElement.dataset.stretch !== undefined`)
	b.Press(kb.Enter)
	b.Expect(`document.activeElement.getAttribute("aria-pressed")`, "true")
	fact := func(name string) string {
		return `document.querySelector("[data-map=facts]").hidden ? "hidden" : document.querySelector("[data-fact=` + name +
			`]").textContent`
	}
	b.Expect(fact("state"), "Jam")
	b.Expect(fact("heading"), "East")
	b.Expect(`/^[\d.]+ km\/h$/.test(`+fact("speed")+`) + " " + /^(\d|[1-3]\d|40)(\.\d)? %$/.test(`+fact("share")+`)`,
		"true true")
	b.Expect(`(+(`+fact("cars")+`) >= 3)`, "true")
	b.Expect(`/UTC/.test(`+fact("since")+`)`, "true")

	var x, y float64
	middle := b.Eval(`(() => { const r = document.querySelector("canvas").getBoundingClientRect(); ` +
		`return (r.x + r.width / 2) + " " + (r.y + r.height / 2); })()`)
	_, err := fmt.Sscan(middle, &x, &y)
	testkit.NoError(t, err)
	b.Run(chromedp.MouseClickXY(x, y-120))
	b.Expect(fact("state"), "hidden")
	b.Run(chromedp.MouseClickXY(x, y))
	b.Expect(fact("state"), "Jam")

	const scale = `document.querySelector(".rule span").textContent + " in " + ` +
		`document.querySelector(".rule span").style.width`
	b.TabTo(`document.activeElement.tagName === "CANVAS"`)
	b.Press("0")
	b.Expect(painted, "a jam")
	whole := b.Eval(scale)
	b.Press("+")
	b.Expect(`String((`+scale+`) !== "`+whole+`")`, "true")
	b.Press("-")
	b.Expect(scale, whole)
	for range 30 {
		b.Press(kb.ArrowRight)
	}
	b.Expect(painted, "none: 0")
	b.Press("0")
	b.Expect(painted, "a jam")
	b.Run(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x, y-100, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x+250, y-100, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x+250, y-700, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x+250, y-700, chromedp.ButtonLeft))
	b.Expect(painted, "none: 0")
	b.Run(chromedp.Click(chromedp.CSS("[data-do=all]")))
	b.Expect(painted, "a jam")

	turnTo(b, "/vehicles/anow7")
	b.Expect(`document.querySelector("[data-live=way]").innerText.startsWith("The grey band is the last 300 m")`,
		"true")
	b.Expect(`/^\d+ stretches$/.test(document.querySelector("[data-map=count]").textContent)`, "true")
	b.Expect(painted, "a jam")
	b.StayedHere()
}
