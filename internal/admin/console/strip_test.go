package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// One every ten seconds, up to noon.
func drove(t *testing.T, kmh ...float64) (samples []vehicle.Sample) {
	t.Helper()
	for i, v := range kmh {
		x := vehicle.Sample{Vehicle: "carA", Time: signal.At(noon.Add(time.Duration(i+1-len(kmh)) * 10 * time.Second))}
		testkit.NoError(t, x.Set(signal.Speed, v))
		samples = append(samples, x)
	}
	return samples
}

func TestStripSaysTheLastHour(t *testing.T) {
	var samples []vehicle.Sample
	var fails error
	since, reads := noon.Add(-time.Hour), 0
	f := loggedIn(t, func(c *console.Config) {
		c.Recent = func(context.Context, vehicle.ID, int) (store.Recent, error) {
			reads++
			return store.Recent{Samples: samples, Since: since, All: true}, fails
		}
	})
	f.report("carA", jammed(time.Minute))
	f.want(f.get("/vehicles"), http.StatusOK, `data-hour="/vehicles/carA/hour"`, "Last hour")
	f.want(f.get("/"), http.StatusOK, `data-hour="/vehicles/carA/hour"`, "the last hour")
	if reads != 0 {
		t.Errorf("the pages with lists: got telemetry read %d times, want 0", reads)
	}

	steady := make([]float64, 60)
	for i := range steady {
		steady[i] = 60
	}
	samples = drove(t, steady...)
	a := f.get("/vehicles/carA/hour")
	f.want(a, http.StatusOK, `aria-label="normal driving 11:50 to 12:00 UTC"`, `<rect class="band normal" x="100.`,
		`width="19.`)
	if strings.Contains(a.body, "on</span>") || reads != 1 {
		t.Errorf("the whole hour: got it read %d times, want once, without its beginning:\n%s", reads, a.body)
	}
	samples = nil
	f.want(f.get("/vehicles/carA/hour"), http.StatusOK, "no reading</span>")

	// Only a part of the hour was read, or nothing.
	since, samples = noon.Add(-5*time.Minute), drove(t, 60, 60)
	f.want(f.get("/vehicles/carA/hour"), http.StatusOK, "<svg", "from <time", "11:55 UTC</time> on")
	fails = errors.New("disk at 10.0.0.7")
	a = f.get("/vehicles/carA/hour")
	f.want(a, http.StatusOK, "the retained telemetry could not be read")
	f.lacks("the cause is shown", a, "10.0.0.7")
	fails = fmt.Errorf("block 7: %w", access.ErrDamaged)
	f.want(f.get("/vehicles/carA/hour"), http.StatusOK, "a part of the retained telemetry is damaged")
	f.want(f.get("/vehicles/carA"), http.StatusOK, "A part of the retained telemetry is damaged")
	if strings.Contains(f.log.String(), "block 7") {
		t.Errorf("got the log %s, want no line about damage, which the store logs", f.log)
	}

	f.want(f.read(f.anotherBrowser().Get(f.at("/vehicles/carA/hour"))), http.StatusUnauthorized)
	f.want(f.get("/vehicles/a-b/hour"), http.StatusBadRequest)
	f.mu.Lock()
	delete(f.states, "carA")
	f.mu.Unlock()
	if a := f.get("/vehicles/carA/hour"); a.body != "" {
		t.Errorf("a forgotten car: got %s, want nothing", a.body)
	}
}
