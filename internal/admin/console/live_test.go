package console_test

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func (f *fixture) stream(path string) *http.Response {
	f.t.Helper()
	resp, err := f.browser.Get(f.at(path))
	testkit.NoError(f.t, err)
	f.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func next(t *testing.T, lines *bufio.Scanner, part string) string {
	t.Helper()
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var event map[string]string
		testkit.NoError(t, json.Unmarshal([]byte(data), &event))
		if html, ok := event[part]; ok {
			return html
		}
	}
	t.Fatalf("the stream: got its end, %v; want the part %s", lines.Err(), part)
	return ""
}

func scanner(resp *http.Response) *bufio.Scanner {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	return lines
}

func TestLiveFleet(t *testing.T) {
	f := loggedIn(t)
	resp := f.stream("/live/fleet")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("/live/fleet: got %d %v, want 200 and text/event-stream", resp.StatusCode, resp.Header)
	}
	lines := scanner(resp)
	if html := next(t, lines, "jam"); !strings.Contains(html, "No car is in a traffic jam.") {
		t.Errorf("the jams: got %s, want no car", html)
	}
	f.report("carA", jammed(time.Minute))
	f.clock.Advance(2 * time.Second)
	if html := next(t, lines, "jam"); !strings.Contains(html, "/vehicles/carA") {
		t.Errorf("the jams: got %s, want carA", html)
	}
}

func TestLiveVehicle(t *testing.T) {
	var reads atomic.Int64
	speeds := make(chan float64, 1)
	speeds <- 10
	latest, at := 0.0, signal.At(noon)
	f := newFixtureOn(t, func(c *ops.Config) {
		// Only one page calls this.
		c.State = func(context.Context, vehicle.ID) (vehicle.State, bool, error) {
			select {
			case latest = <-speeds:
				at = at.Add(time.Second)
			default:
			}
			x := vehicle.Sample{Time: at}
			if err := x.Set(signal.Speed, latest); err != nil {
				return vehicle.State{}, false, err
			}
			return vehicle.Observe(vehicle.State{}, x), true, nil
		}
	}, func(c *console.Config) {
		c.Recent = func(context.Context, vehicle.ID, int) (store.Recent, error) {
			reads.Add(1)
			return store.Recent{Since: noon, All: true}, nil
		}
	})
	f.logIn(f.key)
	lines := scanner(f.stream("/live/vehicles/carA"))
	if html := next(t, lines, "readings"); !strings.Contains(html, "10 km/h") {
		t.Errorf("the readings: got %s, want 10 km/h", html)
	}
	speeds <- 11
	if html := next(t, lines, "readings"); !strings.Contains(html, "11 km/h") {
		t.Errorf("the readings: got %s, want 11 km/h", html)
	}
	speeds <- -1
	for lines.Text() != "event: late" && lines.Scan() {
	}
	speeds <- 12
	if html := next(t, lines, "curve"); !strings.Contains(html, "<path class=\"line\" d=\"M0.0") {
		t.Errorf("the curve: got %s, want a line from M0.0 on", html)
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("the telemetry: got it read %d times, want once", n)
	}
	f.want(f.get("/live/vehicles/a-b"), http.StatusBadRequest)
}

func TestLive_EndsWithSessionAndConsole(t *testing.T) {
	f := loggedIn(t)
	lines := scanner(f.stream("/live/fleet"))
	next(t, lines, "now")
	f.clock.Advance(12 * time.Hour)
	last := ""
	for lines.Scan() {
		if text := lines.Text(); strings.HasPrefix(text, "event: ") {
			last = text
		}
	}
	if last != "event: end" {
		t.Errorf("the end of the stream: got %q, want event: end", last)
	}

	f.logIn(f.key)
	lines = scanner(f.stream("/live/fleet"))
	next(t, lines, "now")
	f.Operations.Close()
	for lines.Scan() { // until the stream ends
	}
}

func TestLiveOfAVehicleThatAppears(t *testing.T) {
	f := loggedIn(t)
	from := func(page answer) string {
		_, path, _ := strings.Cut(page.body, `data-live-from="`)
		path, _, _ = strings.Cut(path, `"`)
		return path
	}
	ended := func(lines *bufio.Scanner) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "event: end" {
				return
			}
		}
		t.Errorf("the stream: got its end, %v; want event: end before it", lines.Err())
	}
	page := f.get("/vehicles/carA")
	f.want(page, http.StatusNotFound, "No vehicle with this vid has reported")
	lines := scanner(f.stream(from(page)))
	f.report("carA", jammed(time.Minute))
	ended(lines)

	page = f.get("/vehicles/carA")
	f.want(page, http.StatusOK)
	lines = scanner(f.stream(from(page)))
	next(t, lines, "verdicts")
	f.mu.Lock()
	delete(f.states, "carA")
	f.mu.Unlock()
	f.monitor.Put("carA", new(store.Answer))
	ended(lines)
}

func TestLive_HeadHoldsNoStream(t *testing.T) {
	f := loggedIn(t)
	for range 9 {
		resp, err := f.browser.Head(f.at("/live/fleet"))
		testkit.NoError(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("HEAD /live/fleet: got %d %v, want 200 and text/event-stream", resp.StatusCode, resp.Header)
		}
	}
	resp, err := f.browser.Head(f.at("/live/vehicles/carA"))
	testkit.NoError(t, err)
	resp.Body.Close()
	if n := f.livePages(); n != 0 {
		t.Errorf("the open streams: got %g, want 0", n)
	}
}

func TestLiveDoesNotKeepASessionAlive(t *testing.T) {
	f := loggedIn(t)
	f.clock.Advance(time.Hour - time.Second)
	next(t, scanner(f.stream("/live/fleet")), "now")
	f.clock.Advance(time.Second)
	f.want(f.get("/live/fleet"), http.StatusUnauthorized)
}

func TestLiveIsBounded(t *testing.T) {
	f := loggedIn(t)
	var open []*http.Response
	const most = 8 // of a session
	for range most {
		resp := f.stream("/live/fleet")
		next(t, scanner(resp), "now")
		open = append(open, resp)
	}
	a := f.get("/live/fleet")
	f.want(a, http.StatusServiceUnavailable, "too many pages are open")
	if a.header.Get("Retry-After") == "" {
		t.Errorf("the header of a page too many: got %v, want Retry-After", a.header)
	}
	open[0].Body.Close()
	for f.livePages() == most {
		runtime.Gosched() // the server notices it at its next write
		f.report(vehicle.ID(fmt.Sprintf("car%d", f.monitor.Counts().Vehicles)), jammed(time.Minute))
		f.clock.Advance(2 * time.Second)
	}
	next(t, scanner(f.stream("/live/fleet")), "now")
}
