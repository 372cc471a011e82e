package console_test

import (
	"encoding/json/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/vehicle"
)

// Latitude and longitude differ, so that the tests notice if they are swapped.
var street = roadtest.Street{Latitude: 44.5732, Longitude: 11.3481, Heading: 90, Metres: 1500}

func jam(m *road.Map) map[vehicle.ID]vehicle.State {
	roadtest.Feed(m, street.Learn(50, noon))
	return roadtest.Feed(m, street.Drive("car", 8, 10, noon.Add(-9*time.Minute), 5*time.Second))
}

func (f *fixture) stretchesAt(path string) (c roadmap.Collection) {
	f.t.Helper()
	a := f.get(path)
	if err := json.Unmarshal([]byte(a.body), &c); err != nil || a.status != http.StatusOK {
		f.t.Fatalf("%s: got %d, %v: %s, want 200 and stretches", path, a.status, err, a.body)
	}
	return c
}

func TestRoadsPage(t *testing.T) {
	m := new(roadmap.Reader)
	f := newFixture(t, func(c *console.Config) { c.Roads = m })
	for _, path := range []string{"/roads", "/roads/stretches", "/vehicles/car1/stretches", "/live/roads"} {
		f.want(f.get(path), http.StatusUnauthorized, "")
	}
	f.logIn(f.key)
	f.want(f.get("/roads"), http.StatusOK, "No road is known yet", "Vehicle.CurrentLocation.Latitude",
		"once three cars have driven on it", `data-live-from="/live/roads?unknown"`)

	events := scanner(f.stream("/live/roads?unknown"))
	jam(&m.Map)
	f.clock.Advance(time.Minute)
	for events.Scan() && events.Text() != "event: end" {
	}
	a := f.get("/roads")
	f.want(a, http.StatusOK, "Worst stretches", `data-stretches="/roads/stretches"`,
		"jam at 40 % or less, slow at 67 % or less", `src="/assets/roads.js`)
	c := f.stretchesAt("/roads/stretches")
	worst := c.Features[0].Properties
	f.want(a, http.StatusOK, `data-stretch="`+worst.Stretch+`"`, "Jam, ", "</span>East</span>", "0.3 km",
		c.Jams[0].String(), `data-link="https://www.openstreetmap.org/?mlat=44.57`)
	if len(c.Features) < 8 || worst.State != "jam" || c.Way != nil {
		t.Errorf("got %d stretches, the worst %+v; want 8 or more, a jam, no way", len(c.Features), worst)
	}
	if n := strings.Count(a.body, "data-stretch="); n > 21 || len(c.Jams) != 1 {
		t.Errorf("got %d rows and %d jams, want at most 21 and 1", n, len(c.Jams))
	}
	if c := f.stretchesAt("/roads/stretches?bbox=0,0,1,1"); len(c.Features) != 0 {
		t.Errorf("a box in the ocean: got %+v, want no stretch", c)
	}
	f.want(f.get("/roads/stretches?bbox=1"), http.StatusBadRequest, "bbox is west,south,east,north")
	rows := next(t, scanner(f.stream("/live/roads")), "worst")
	if !strings.Contains(rows, worst.Stretch) {
		t.Errorf("the live table: got %s, want the stretch %s in it", rows, worst.Stretch)
	}
	noPlace(t, "the log", f.log.String())

	// Ten minutes later no car is there.
	f.clock.Advance(10 * time.Minute)
	f.want(f.get("/roads"), http.StatusOK, "No stretch has three cars now.")
	if c := f.stretchesAt("/roads/stretches"); len(c.Features) < 8 || c.Features[0].Properties.State != "unknown" {
		t.Errorf("got %+v, want at least 8 stretches, all unknown", c)
	}
}

func noPlace(t *testing.T, where, text string) {
	t.Helper()
	for _, digits := range []string{"44.57", "11.34", "11.35", "11.36"} {
		if strings.Contains(text, digits) {
			t.Errorf("%s: got the position %s, want none:\n%s", where, digits, text)
		}
	}
}

// Only stretches that other cars drive, too, are shown, and the page contains no position.
func TestVehicleWay(t *testing.T) {
	m := new(roadmap.Reader)
	f := loggedIn(t, func(c *console.Config) { c.Roads = m })
	states := jam(&m.Map)
	f.report("car1", states["car1"])
	a := f.get("/vehicles/car1")
	f.want(a, http.StatusOK, "Where it drives", "The grey band", `data-stretches="/vehicles/car1/stretches"`,
		`data-live-from="/live/vehicles/car1?way"`, "not shown")
	noPlace(t, "the page", a.body)
	noPlace(t, "what is live", next(t, scanner(f.stream("/live/vehicles/car1?way")), "way"))
	c := f.stretchesAt("/vehicles/car1/stretches")
	if len(c.Way) < 2 || len(c.Features) < 8 {
		t.Fatalf("got a way of %d stretches among %d, want 2 or more among 8 or more", len(c.Way), len(c.Features))
	}
	shown := make(map[string]bool)
	for _, feature := range c.Features {
		shown[feature.Properties.Stretch] = true
	}
	for _, name := range c.Way {
		if !shown[name] {
			t.Errorf("the way: got %s, want stretches that are shown", name)
		}
	}

	alone := roadtest.Feed(&m.Map, roadtest.Street{Latitude: 44.5732, Longitude: 11.41, Heading: 0,
		Metres: 1000}.Drive("car", 1, 30, noon.Add(-2*time.Minute), 0))
	f.report("car2", alone["car0"])
	f.want(f.get("/vehicles/car2"), http.StatusOK, "No stretch of its last 300 m is known yet")
	if c := f.stretchesAt("/vehicles/car2/stretches"); len(c.Way) != 0 || len(c.Features) != 0 {
		t.Errorf("got %+v, want no stretch", c)
	}

	// The map comes with the first position.
	f.report("car3", jammed(time.Minute))
	f.want(f.get("/vehicles/car3"), http.StatusOK, "It has sent no position", `data-live-from="/live/vehicles/car3"`)
	if c := f.stretchesAt("/vehicles/car3/stretches"); c.Way == nil || len(c.Features) != 0 {
		t.Errorf("got %+v, want an empty way", c)
	}
	events := scanner(f.stream("/live/vehicles/car3"))
	f.report("car3", states["car1"])
	for events.Scan() && events.Text() != "event: end" {
	}
	if events.Err() != nil || events.Text() != "event: end" {
		t.Errorf("the end of the stream: got %q, %v; want event: end", events.Text(), events.Err())
	}
}
