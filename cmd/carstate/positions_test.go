package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// No time, count or measured value here has these digits. The longitude is no latitude, so swapped
// ones are refused.
const placeLatitude, placeLongitude = -48.7316482, 93.6471928

// For every rounding to four digits or more.
var placeDigits = []string{"48.73", "93.64", "93.65"}

func checkNoPlace(t *testing.T, where, text string) {
	t.Helper()
	for _, digits := range placeDigits {
		if strings.Contains(text, digits) {
			t.Errorf("%s: got the position %s, want none:\n%s", where, digits, text)
		}
	}
}

// No person can read a car's positions. Only names of signals may appear and, on an operator's
// maps, stretches that other cars drive, too.
func TestPositionsAreNowhereToBeRead(t *testing.T) {
	t.Parallel()
	startsPrograms(t)
	const vid = "carWithPlace"
	access := filepath.Join(t.TempDir(), "access.log")
	p, err := startProcess(t.TempDir(), nil, "--log-level", "debug", "--access-log", access)
	testkit.NoError(t, err)
	t.Cleanup(p.Kill)
	key, token := p.addSource(t, "gateway"), p.issue(t)

	// Long enough for verdicts.
	began := signal.At(time.Now()).Add(-5 * time.Minute)
	sampleOf := func(id vehicle.ID, i int) vehicle.Sample {
		x := vehicle.Sample{Vehicle: id, Time: began.Add(time.Duration(i) * 5 * time.Second)}
		testkit.NoError(t, errors.Join(x.Set(signal.Speed, 30), x.Set(signal.ThrottlePosition, 20),
			x.Set(signal.CurrentHeading, 90), x.Set(signal.CurrentAccuracy, 4),
			x.Set(signal.CurrentLatitude, placeLatitude),
			x.Set(signal.CurrentLongitude, placeLongitude+float64(i)*1e-6)))
		return x
	}
	mqtt, err := sender.MQTT(t.Context(), "mqtt://"+p.Address(nodeprocess.MQTT), sender.Login{Name: "gateway", Key: key},
		nil)
	testkit.NoError(t, err)
	defer mqtt.Close()
	web := sender.HTTP(p.URL(nodeprocess.Ingest), sender.Login{Name: "gateway", Key: key}, nil)
	defer web.Close()
	var drive []vehicle.Sample
	for i := range 60 {
		drive = append(drive, sampleOf(vid, i))
	}
	testkit.NoError(t, errors.Join(web.Send(t.Context(), drive[:30]), mqtt.Send(t.Context(), drive[30:])))
	for _, line := range []string{
		`{"vid":"%s","time":%d,"signals":{"Vehicle.CurrentLocation.Longitude":%g,"Vehicle.CurrentLocation.Latitude":%g}}`,
		`{"vid":"%s","time":%d,"signals":{"Vehicle.CurrentLocation.Longitude":%g,"Vehicle.CurrentLocation.Latitude":%g`,
		`{"vid":"%s","time":%d,"signals":{"Vehicle.CurrentLocation.Longitude":"%g,%g"}}`,
	} {
		answer, err := exec.Command("curl", "-s", "--oauth2-bearer", key, "-H", "Content-Type: application/x-ndjson",
			"--data", fmt.Sprintf(line, vid, time.Now().UnixMilli(), placeLatitude, placeLongitude),
			p.URL(nodeprocess.Ingest)+"/v1/telemetry").Output()
		if err != nil || !strings.Contains(string(answer), `"reason":`) {
			t.Errorf("%s: got %s, %v; want a reason", line, answer, err)
		}
		checkNoPlace(t, "the answer", string(answer))
	}

	since := drive[len(drive)-1].Time.Time()
	testkit.NoError(t, until(time.Minute, func() error { return p.folded(token, vid, since) }))
	for _, path := range []string{drivingPath, throttlePath} {
		checkNoPlace(t, path, read(t, http.DefaultClient, p.URL(nodeprocess.Query)+path+"?access_token="+token+"&vid="+vid))
	}
	for _, args := range [][]string{{"explain", vid}, {"explain", vid, "--json"}} {
		text := p.carstate(t, args...)
		checkNoPlace(t, strings.Join(args, " "), text)
		if !strings.Contains(text, "Vehicle.CurrentLocation.Latitude") {
			t.Errorf("%s: got\n%s\nwant that the car sends positions", args, text)
		}
	}
	adminKey := strings.TrimSpace(readFile(t, filepath.Join(p.Dir, "admin.key")))
	checkNoPlace(t, "/metrics", p.metrics(t))

	jar, err := cookiejar.New(nil)
	testkit.NoError(t, err)
	operator := &http.Client{Jar: jar, Timeout: time.Minute}
	base := p.URL(nodeprocess.Admin)
	resp, err := operator.PostForm(base+"/login", url.Values{"key": {adminKey}})
	testkit.NoError(t, err)
	resp.Body.Close()
	session := base + resp.Request.URL.Path
	// A stretch that only one car has driven is not on a map.
	roads := func() (text string) {
		for _, path := range []string{"/roads", "/roads/stretches", "/vehicles/" + vid + "/stretches"} {
			text += read(t, operator, session+path)
		}
		all := fmt.Sprintf("/v1/roads?bbox=-180,-90,180,90&limit=%d", roadmap.MaxStretches)
		return text + read(t, http.DefaultClient, base+all, adminKey)
	}
	checkNoPlace(t, "the maps, of one car", roads())
	cars := 0
	testkit.NoError(t, until(time.Minute, func() error {
		began = signal.At(time.Now()).Add(-30 * time.Second)
		for range 4 {
			var others []vehicle.Sample
			for i := range 6 {
				others = append(others, sampleOf(vehicle.ID(fmt.Sprint("other", cars)), i))
			}
			cars++
			testkit.NoError(t, web.Send(t.Context(), others))
		}
		if n := strings.Count(roads(), placeDigits[0]); n < 6 {
			return fmt.Errorf("the maps show the stretch %d times", n)
		}
		return nil
	}))
	for _, page := range []string{"/", "/vehicles", "/vehicles/" + vid, "/tokens", "/sources", "/operators", "/audit"} {
		text := read(t, operator, session+strings.TrimSuffix(page, "/"))
		checkNoPlace(t, page, text)
		if strings.HasSuffix(page, vid) && !strings.Contains(text, "Vehicle.CurrentLocation.Longitude") {
			t.Errorf("%s: got\n%s\nwant that the car sends positions", page, text)
		}
	}
	for _, page := range []string{"/live/fleet", "/live/vehicles/" + vid + "?way"} {
		checkNoPlace(t, page, firstEvent(t, operator, session+page))
	}
	p.stop(t)
	checkNoPlace(t, "the log", p.log.String())
	checkNoPlace(t, "the access log", readFile(t, access))
}

func read(t *testing.T, by *http.Client, url string, key ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	testkit.NoError(t, err)
	for _, k := range key {
		req.Header.Set("Authorization", "Bearer "+k)
	}
	resp, err := by.Do(req)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: got HTTP %d, %v, want 200", resp.Request.URL.Path, resp.StatusCode, err)
	}
	return fmt.Sprint(resp.Header) + string(body)
}

func firstEvent(t *testing.T, by *http.Client, url string) string {
	t.Helper()
	resp, err := by.Get(url)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			return lines.Text()
		}
	}
	t.Fatalf("%s: got HTTP %d without an event, want one", resp.Request.URL.Path, resp.StatusCode)
	return ""
}
