package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

// All but one, whose library the test machine cannot install.
func TestTelemetryExamples(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	key := p.addSource(t, "gateway-1")
	text, err := os.ReadFile("../../docs/telemetry.md")
	testkit.NoError(t, err)
	host, port, _ := strings.Cut(p.Address(nodeprocess.MQTT), ":")
	here := strings.NewReplacer("http://127.0.0.1:8081", p.URL(nodeprocess.Ingest), "-h 127.0.0.1 -p 1883",
		"-h "+host+" -p "+port, "export CARSTATE_KEY=css_…", "")
	ran := 0
	for _, m := range regexp.MustCompile("(?s)```(sh|python|go)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[2], "paho") {
			continue
		}
		ran++
		file := filepath.Join(t.TempDir(), "example."+m[1])
		testkit.NoError(t, os.WriteFile(file, []byte(here.Replace(m[2])), 0o600))
		args := map[string][]string{"sh": {"sh", "-e"}, "python": {"python3"}, "go": {"go", "run"}}[m[1]]
		c := exec.CommandContext(t.Context(), args[0], append(args[1:], file)...)
		c.Env = append(os.Environ(), "CARSTATE_KEY="+key)
		out, err := c.CombinedOutput()
		accepted := regexp.MustCompile(`.accepted.: ?1,`).Match(out)
		if quiet := strings.Contains(m[2], "mosquitto_pub"); err != nil || accepted == quiet || quiet && len(out) > 0 {
			t.Errorf("%v\n%s\n%s", err, m[2], out)
		}
	}
	if ran != 4 {
		t.Errorf("%d examples ran", ran)
	}
}
