package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestStrictSource checks that a sample with a misspelt signal is refused from a strict source, and
// accepted from another.
func TestStrictSource(t *testing.T) {
	p := start(t, t.TempDir())
	strict := strings.TrimSpace(p.carstate(t, "source", "add", "strict", "--vehicles", "all", "--strict",
		"--expires", "90d"))
	misspelt := fmt.Sprintf(`{"vid":"V1","time":%d,"signals":{"Vehicle.Speed":1,"Vehicle.Sped":2}}`,
		time.Now().UnixMilli())
	for key, wants := range map[string]int{strict: 0, p.addSource(t, "lenient"): 1} {
		if n, err := postLines(p, key, misspelt); n != wants {
			t.Errorf("%d accepted, want %d (%v)", n, wants, err)
		}
	}
	for name, wants := range map[string][]string{
		"strict":  {"unknown signals  a sample that has one, or an unused value, is refused\n", "  unknown_signal 1\n"},
		"lenient": {"unknown signals  ignored\n", "ignored signals  1\n"},
	} {
		shown := p.carstate(t, "source", "show", name)
		if strings.Contains(shown, "expires          never") == (name == "strict") {
			t.Errorf("wrong expiry of %s:\n%s", name, shown)
		}
		for _, want := range wants {
			if !strings.Contains(shown, want) {
				t.Errorf("%q is missing in\n%s", want, shown)
			}
		}
	}
}

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
