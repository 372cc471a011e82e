package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/testkit"
)

// All that operators see names the source.
func TestSourceWithWrongSpeeds(t *testing.T) {
	p := start(t, t.TempDir())
	key := p.addSource(t, "gateway")
	var lines strings.Builder
	for s := range 400 {
		fmt.Fprintf(&lines, `{"vid":"V1","time":%d,"signals":{"Vehicle.Speed":20,"Vehicle.CurrentLocation.Latitude":%f,`+
			`"Vehicle.CurrentLocation.Longitude":11}}`+"\n", time.Now().UnixMilli()-int64(400-s)*1000, 48+float64(s)*20/111195)
	}
	if n, err := postLines(p, key, lines.String()); n != 400 {
		t.Fatalf("telemetry: got %d accepted, %v, want 400", n, err)
	}
	for want, shown := range map[string]string{
		"positions show 3.6 times the speed (1 of 1 compared vehicles): is it in m/s?\n": p.carstate(t, "source", "show", "gateway"),
		`"speed_factor": {`:                          p.carstate(t, "source", "show", "gateway", "--json"),
		`carstate_sources_wrong_speed{unit="m/s"} 1`: p.metrics(t),
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("got\n%s\nwant %q", shown, want)
		}
	}
}

func TestSourceThatSendsOnChange(t *testing.T) {
	p := start(t, t.TempDir())
	token := p.issue(t)
	for i, c := range []struct {
		onChange string
		ago      int // minutes, of the only speed
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
		_, err := postLines(p, key, lines)
		testkit.NoError(t, err)
		if err := until(testkit.Patience, func() error {
			a, err := p.ask(drivingPath, token, fmt.Sprintf("V%d", i))
			if got := a.Driving + a.Reason; err == nil && got != c.want {
				err = fmt.Errorf("%s", got)
			}
			return err
		}); err != nil {
			t.Errorf("--on-change %s, %d min: got %v, want %s", c.onChange, c.ago, err, c.want)
		}
	}
	if shown := p.carstate(t, "source", "show", "gateway-2"); !strings.Contains(shown, "holds for 1h0m0s") {
		t.Errorf("source show gateway-2: got\n%s\nwant holds for 1h0m0s", shown)
	}
}

// The key of one source teaches a street no false free flow. The operator sees what was not
// believed, and can forget it.
func TestLiesAboutRoads(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "--max-age", "1h")
	token, gateway, now := p.issue(t), p.addSource(t, "gateway"), time.Now()
	liar := strings.TrimSpace(p.carstate(t, "source", "add", "liar", "--vehicles", "L0,L1,L2"))
	send := func(key, name string, cars int, kmh, metres float64, last time.Time, gap time.Duration) {
		t.Helper()
		var lines strings.Builder
		for k := range cars {
			lines.WriteString(driveOn(fmt.Sprint(name, k), last.Add(time.Duration(k-cars+1)*gap), metres, kmh))
		}
		_, err := postLines(p, key, lines.String())
		testkit.NoError(t, err)
	}
	count := func(name string, cars int, last time.Time, gap time.Duration, want string) (n int) {
		t.Helper()
		for k := range cars {
			vid := fmt.Sprint(name, k)
			end := last.Add(time.Duration(k-cars+1) * gap)
			testkit.NoError(t, until(testkit.Patience, func() error { return p.folded(token, vid, end) }))
			if a, err := p.ask(drivingPath, token, vid); err == nil && a.Driving == want {
				n++
			}
		}
		return n
	}
	for q := range 6 {
		send(gateway, fmt.Sprintf("free%dcar", q), 6, 45, 1500, now.Add(time.Duration(q-8)*15*time.Minute), 20*time.Second)
	}
	for _, ago := range []time.Duration{48 * time.Hour, 20 * time.Hour} {
		for q := range 6 {
			send(liar, "L", 3, 290, 1500, now.Add(-ago+time.Duration(q)*15*time.Minute), 0)
		}
	}
	send(gateway, "flows", 12, 45, 1500, now.Add(-6*time.Minute), 10*time.Second)
	if n := count("flows", 12, now.Add(-6*time.Minute), 10*time.Second, "1"); n != 12 {
		t.Errorf("the cars that flow: got %d normal, want 12", n)
	}
	send(gateway, "creeps", 20, 9, 400, now, 5*time.Second)
	if n := count("creeps", 20, now, 5*time.Second, "3"); n < 15 {
		t.Errorf("the cars that creep: got %d of 20 in a jam, want 15 or more", n)
	}
	if shown := p.carstate(t, "source", "show", "liar"); !strings.Contains(shown, "\nroads doubted    ") ||
		!strings.Contains(shown, "\non roads         all its cars count as one\n") {
		t.Errorf("source show liar: got\n%s\nwant its roads doubted, and all its cars as one", shown)
	}
	if shown := p.carstate(t, "roads", "forget", "11.3,44.4,11.4,44.6", "--yes"); !strings.Contains(shown, " are forgotten") {
		t.Errorf("roads forget: got %s, want that roads are forgotten", shown)
	}
	if n, err := sumOf(p, "carstate_road_stretches_by_state"); n != 0 || err != nil {
		t.Errorf("the stretches known: got %g, %v, want 0", n, err)
	}
}
