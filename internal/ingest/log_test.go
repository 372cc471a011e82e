package ingest_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

func TestLog_StoreOutageWithoutSecrets(t *testing.T) {
	f := newFixture(t)
	var log testkit.Buffer
	f.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	failing := true
	f.store.append = func(context.Context) error {
		if failing {
			return errDisk
		}
		return nil
	}
	_, url := startHTTP(t, f)
	_, addr := startMQTT(t, f.Config)
	for range 3 {
		request{body: sampleLine("V1", 1, 1), status: 503}.send(t, url, f.key)
	}
	request{header: "Authorization: Bearer " + mistyped(f.key), body: "hello " + f.key, status: 401}.send(t, url, f.key)
	c := dialRaw(t, addr, 5)
	c.connect("car", mistyped(f.key), 30)
	c = f.login(t, addr, 5)
	c.publish(2, 1, "vehicles/"+f.key+"/telemetry", f.key)
	c.wantPuback(1, 0x90)
	c.publish(2, 2, topicV1, valuesLine(`"Vehicle.CurrentLocation.Latitude":98.7316`)+"}")
	c.wantPuback(2, 0x99)
	failing = false
	request{body: sampleLine("V1", 1, 1), status: 202}.send(t, url, f.key)

	text := log.String()
	for what, n := range map[string]int{
		"cannot store telemetry":  1,
		"storing telemetry again": 1,
		f.key[4:]:                 0,
		"hello":                   0,
		"98.73":                   0,
	} {
		if got := strings.Count(text, what); got != n {
			t.Errorf("%q is in the log %d times, want %d:\n%s", what, got, n, text)
		}
	}
}

// The log says once a minute why something of a source was refused. Strangers cannot cause a line
// for each source.
func TestLog_Refusals(t *testing.T) {
	f := newFixture(t)
	clock := testkit.NewClock(testNow)
	f.Now = clock.Now
	var log testkit.Buffer
	f.Log = slog.New(slog.NewTextHandler(&log, nil))
	_, other := f.add(t, "other", access.AllVehicles())
	_, url := startHTTP(t, f)
	_, addr := startMQTT(t, f.Config)
	car := f.login(t, addr, 4)
	for range 2 {
		car.publish(2, 1, topicV1, "hello")
		car.wantPuback(1, 0)
		request{body: sampleLine("V9", 1, 1), status: 403}.send(t, url, f.key)
		request{body: "", status: 400}.send(t, url, other)
		clock.Advance(time.Minute)
	}
	for _, name := range []string{"car", "other"} {
		clock.Advance(time.Hour)
		dialRaw(t, addr, 4).connect(name, "wrong", 30)
	}
	for line, n := range map[string]int{
		`source=car reason=malformed text="the line is not valid JSON from byte 1 on" others_since_last_line=0`: 1,
		`source=car reason=malformed text="the line is not valid JSON from byte 1 on" others_since_last_line=1`: 1,
		`source=other reason=empty`: 2,
		`reason=wrong_key`:          1,
		`level=WARN`:                5,
	} {
		if got := log.Count(line); got != n {
			t.Errorf("%q is in the log %d times, want %d:\n%s", line, got, n, &log)
		}
	}
}

func TestHTTPStalledBody(t *testing.T) {
	f := newFixture(t)
	f.SetGrace(50 * time.Millisecond)
	_, url := startHTTP(t, f)
	line := sampleLine("V1", 1, 1) + "\n"
	conn := dialHTTP(t, url, strings.TrimSuffix(posting(f.key, line+line), line))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") ||
		!strings.Contains(string(answer), "Connection: close") {
		t.Errorf("the answer: got %q, error %v; want 408 and Connection: close", answer, err)
	}
	f.store.wants(t)
}
