package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/testkit"
)

// TestSourceWithWrongSpeeds checks that the source of a car that sends its speed in m/s is named in
// all places that operators see.
func TestSourceWithWrongSpeeds(t *testing.T) {
	p := start(t, t.TempDir())
	key := p.addSource(t, "gateway")
	var lines strings.Builder
	for s := range 400 {
		fmt.Fprintf(&lines, `{"vid":"V1","time":%d,"signals":{"Vehicle.Speed":20,"Vehicle.CurrentLocation.Latitude":%f,`+
			`"Vehicle.CurrentLocation.Longitude":11}}`+"\n", time.Now().UnixMilli()-int64(400-s)*1000, 48+float64(s)*20/111195)
	}
	if n, err := postLines(p, key, lines.String()); n != 400 {
		t.Fatalf("%d accepted (%v)", n, err)
	}
	for want, shown := range map[string]string{
		"positions show 3.6 times the speed (1 of 1 compared vehicles): is it in m/s?\n": p.carstate(t, "source", "show", "gateway"),
		`"speed_factor": {`:                          p.carstate(t, "source", "show", "gateway", "--json"),
		`carstate_sources_wrong_speed{unit="m/s"} 1`: p.metrics(t),
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is missing in\n%s", want, shown)
		}
	}
}

// TestSourceThatSendsOnChange checks how long a speed holds while a car sends only other readings.
func TestSourceThatSendsOnChange(t *testing.T) {
	p := start(t, t.TempDir())
	token := p.issue(t)
	for i, c := range []struct {
		onChange string
		ago      int // minutes since the only speed
		want     string
	}{
		{"auto", 10, "1"}, {"auto", 45, "0stale"}, {"1h", 45, "1"}, {"15m", 29, "0stale"}, {"0", 10, "0stale"},
	} {
		name := fmt.Sprintf("gateway-%d", i)
		key := strings.TrimSpace(p.carstate(t, "source", "add", name, "--vehicles", "all", "--on-change", c.onChange))
		now := time.Now().UnixMilli()
		lines := fmt.Sprintf(`{"vid":"V%d","time":%d,"signals":{"Vehicle.Speed":100}}`, i, now-int64(c.ago)*60_000)
		for s := c.ago * 60; s >= 0; s -= 20 {
			lines += fmt.Sprintf("\n"+`{"vid":"V%d","time":%d,"signals":{"Vehicle.OBD.EngineLoad":30}}`, i, now-int64(s)*1000)
		}
		if _, err := postLines(p, key, lines); err != nil {
			t.Fatal(err)
		}
		if err := until(testkit.Patience, func() error {
			a, err := p.ask(drivingPath, token, fmt.Sprintf("V%d", i))
			if got := a.Driving + a.Reason; err == nil && got != c.want {
				err = fmt.Errorf("got %s, want %s", got, c.want)
			}
			return err
		}); err != nil {
			t.Errorf("--on-change %s, %d min: %v", c.onChange, c.ago, err)
		}
	}
	if shown := p.carstate(t, "source", "show", "gateway-2"); !strings.Contains(shown, "holds for 1h0m0s") {
		t.Errorf("got\n%s", shown)
	}
}
