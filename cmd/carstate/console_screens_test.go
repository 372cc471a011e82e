package main_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"example.org/carstate/internal/browsertest"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/testkit"
)

// TestConsoleScreensOfTheDemo takes the pictures that need many cars.
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
