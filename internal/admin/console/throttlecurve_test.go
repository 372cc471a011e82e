package console_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

func TestThrottleCurveOfAnAnomaly(t *testing.T) {
	var samples []vehicle.Sample
	var healthy, s vehicle.State
	begin := noon.Add(-240 * time.Second)
	for i := range 480 {
		x := vehicle.Sample{Vehicle: "carA", Time: signal.At(begin.Add(time.Duration(i) * 500 * time.Millisecond))}
		command, plate := 4+float64(i/20%3*5), 10+float64(i/20%3*5)
		if i >= 400 {
			command, plate = 4, 60
		}
		for g, v := range map[signal.Signal]float64{signal.Speed: 50, signal.ThrottleActuator: command,
			signal.ThrottlePosition: plate} {
			testkit.NoError(t, x.Set(g, v))
		}
		if s = vehicle.Observe(s, x); i == 399 {
			healthy = s
		}
		samples = append(samples, x)
	}
	f := newFixture(t, func(c *console.Config) {
		c.Recent = func(context.Context, vehicle.ID, int) (store.Recent, error) {
			return store.Recent{Samples: samples, Since: begin, All: true}, nil
		}
	})
	f.report("carA", healthy)
	f.logIn(f.key)
	f.lacks("the page of a healthy car draws an anomaly", f.get("/vehicles/carA"), "The sensors that disagree")
	f.report("carA", s)
	shown := f.get("/vehicles/carA")
	f.want(shown, http.StatusOK, "The sensors that disagree", "the command", "plate sensor A",
		"up to 2 % from what this car has shown", `class="alarm"`, `class="allowed"`, "it is at 60 % in place of",
		"normal again from", "1 more measure is only in the JSON of the API.")
	f.lacks("the page shows a score of the rules", shown, throttle.Evidence)
	texts := regexp.MustCompile(`data-texts="([^"]*the command[^"]*)"`).FindStringSubmatch(shown.body)
	if texts == nil || strings.Count(texts[1], "|") != 239 ||
		!strings.Contains(texts[1][strings.LastIndex(texts[1], "|"):], "the command 4 %, plate sensor A 60 %, expected 1") {
		t.Errorf("got the read-outs %v, want 240 that end with the anomaly", texts)
	}
	// The alarm is 200 to 215 s after the beginning of 240 s. The band and each line have one part.
	for _, drawn := range []string{`class="alarm" x1="8[3-9]`, `class="allowed" d="[^"Z]+Z"/>`,
		`class="line x" d="M[^"M]+"/>`} {
		if !regexp.MustCompile(drawn).MatchString(shown.body) {
			t.Errorf("the page: got %s, want %s in it", shown.body, drawn)
		}
	}
}
