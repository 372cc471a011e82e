package main_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// A drive has the same state by HTTP and by MQTT, and no file or log has a secret of the test.
func TestIngest_SameStatesAndNoSecretsLeft(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "--log-level", "debug", "--max-age", "24h")
	token, key := p.issue(t), p.addSource(t, "gateway")
	began := make(map[string]time.Time)
	for vid, door := range map[string][]string{
		"byHTTP":  nil,
		"byMQTT":  {"--mqtt-addr", p.Address(nodeprocess.MQTT)},
		"byMQTT2": {"--mqtt-url", "mqtt://" + p.Address(nodeprocess.MQTT), "--source", "gateway", "--key", key},
	} {
		began[vid] = time.Now()
		p.carstate(t, append([]string{"replay", demoDrive, "--vid", vid}, door...)...)
	}
	for vid := range began {
		if err := until(30*time.Second, func() error {
			a, err := p.ask(drivingPath, token, vid)
			if err == nil && a.Driving != "3" {
				err = errNotJam
			}
			return errors.Join(err, p.folded(token, vid, began[vid]))
		}); err != nil {
			t.Fatalf("%s: got %v, want a jam", vid, err)
		}
		if a, err := p.ask(throttlePath, token, vid); err != nil || a.Throttle != "1" {
			t.Fatalf("%s: got throttle %+v, %v, want 1", vid, a, err)
		}
	}
	for _, q := range []string{"?access_token=" + token, "?access_token=" + token + "&vid=x-y", "/" + token,
		"?access_token=" + token + "%zz&vid=a"} {
		resp, err := http.Get(p.URL(nodeprocess.Query) + drivingPath + q)
		testkit.NoError(t, err)
		resp.Body.Close()
	}
	if took := p.stop(t); took > 5*time.Second {
		t.Errorf("the end: got it after %s, want 5s at most", took)
	}
	compareStates(t, dir)
	for name, secret := range map[string]string{"token": token, "key": key} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log: got the %s, want it nowhere", name)
		}
		searchFiles(t, dir, name, secret)
	}
}

var errNotJam = errors.New("it is not in a traffic jam")

func storedStates(t *testing.T, dir string) map[vehicle.ID]vehicle.State {
	t.Helper()
	e, err := local.Open(t.Context(), local.Config{DataDir: dir})
	testkit.NoError(t, err)
	n := storetest.Start(t, e, store.Config{})
	defer n.Stop()
	states := make(map[vehicle.ID]vehicle.State)
	for p := range e.Partitions() {
		for next, more := 0, true; more; more = next > 0 {
			r, err := e.Ask(t.Context(), p, &store.Question{Kind: store.AskStates, From: next})
			testkit.NoError(t, err)
			next = r.Next
			testkit.NoError(t, store.DecodeEntries(r.Entries, func(x store.Entry) (err error) {
				states[x.Vehicle], err = codec.DecodeState(x.State)
				return err
			}))
		}
	}
	return states
}

// Each replay ended at another time.
func compareStates(t *testing.T, dir string) {
	t.Helper()
	states := storedStates(t, dir)
	if len(states) != 3 {
		t.Fatalf("the stored states: got %d, want 3", len(states))
	}
	want := atZero(states["byHTTP"])
	for id, s := range states {
		if atZero(s) != want {
			t.Errorf("%s: got %+v, want that of byHTTP:\n%+v", id, atZero(s), want)
		}
	}
}

func atZero(s vehicle.State) vehicle.State {
	moveTimes(reflect.ValueOf(&s).Elem(), s.Time-1_000_000_000)
	return s
}

func moveTimes(v reflect.Value, by signal.UnixMilli) {
	switch {
	case v.Type() == reflect.TypeFor[signal.UnixMilli]():
		if v.Int() != 0 {
			v.SetInt(v.Int() - int64(by))
		}
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			moveTimes(field, by)
		}
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			moveTimes(v.Index(i), by)
		}
	}
}

func searchFiles(t *testing.T, dir, name, secret string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), secret) {
			t.Errorf("%s: got the %s, want it nowhere", path, name)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Fatalf("the files searched: got %d, %v, want 5 or more", files, err)
	}
}

// A client receives the whole response to a request that is refused halfway. net/http closes after
// half a second, so on a slow machine one success of many attempts is enough.
func TestARefusalEndsInPeace(t *testing.T) {
	p := start(t, t.TempDir())
	const tries = 20
	for i := range tries {
		c, err := net.Dial("tcp", p.Address(nodeprocess.Ingest))
		testkit.NoError(t, err)
		defer c.Close()
		testkit.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		request := "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 20_000)
		_, err = io.WriteString(c, request)
		testkit.NoError(t, err)
		text, err := io.ReadAll(c)
		if !bytes.HasPrefix(text, []byte("HTTP/1.1 401 ")) {
			t.Fatalf("a request without a key: got %q, want HTTP 401", text)
		}
		if err == nil {
			return
		}
		t.Logf("try %d: %v", i, err)
	}
	t.Errorf("%d requests: got no connection that ended in peace, want one", tries)
}

// The commands use the admin listener on loopback without TLS.
func TestTLS_AllListenersButAdmin(t *testing.T) {
	t.Parallel()
	cert, key, roots := testkit.Certificate(t)
	p := start(t, t.TempDir(), "--tls-cert", cert, "--tls-key", key, "--mqtt-tls-addr", "127.0.0.1:0", "--max-age", "24h")
	token := p.issue(t)
	config := &tls.Config{RootCAs: roots}
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	answer, err := client.New("https://"+p.Address(nodeprocess.Query), token,
		client.WithHTTPClient(own)).CarDrivingState(t.Context(), "x")
	if err != nil || answer.Reason != client.ReasonUnknown {
		t.Errorf("got %v, %v, want that the vehicle is unknown", answer, err)
	}
	resp, err := own.Post("https://"+p.Address(nodeprocess.Ingest)+"/v1/telemetry", "application/json",
		strings.NewReader("{}"))
	testkit.NoError(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("telemetry without a key: got HTTP %d, want 401", resp.StatusCode)
	}
	cmd := exec.Command(binary, "replay", demoDrive, "--vid", "byTLS", "--ingest-url",
		"https://"+p.Address(nodeprocess.Ingest))
	cmd.Env = p.env()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--ca FILE") {
		t.Errorf("replay without --ca: got %v: %s, want the advice --ca FILE", err, out)
	}
	p.carstate(t, "replay", demoDrive, "--vid", "byTLS", "--ca", cert, "--ingest-url",
		"https://"+p.Address(nodeprocess.Ingest))
	p.carstate(t, "replay", demoDrive, "--vid", "byMQTTS", "--ca", cert, "--mqtt-url",
		"mqtts://"+p.Address("mqtt-tls-addr"))

	query := exec.Command(binary, "query", "car-driving-state", "byTLS", "--url", "https://"+p.Address(nodeprocess.Query))
	query.Env = append(p.env(), "CARSTATE_TOKEN="+p.issue(t))
	if out, err := query.CombinedOutput(); err == nil || !strings.Contains(string(out), "--ca FILE") {
		t.Errorf("query without --ca: got %v: %s, want the advice --ca FILE", err, out)
	}
	token, args := "CARSTATE_TOKEN="+p.issue(t), append(query.Args[1:], "--ca", cert)
	testkit.NoError(t, until(30*time.Second, func() error { // once the drive is folded
		query := exec.Command(binary, args...)
		query.Env = append(p.env(), token)
		if out, err := query.CombinedOutput(); err != nil || !strings.Contains(string(out), "traffic jam") {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	}))

	old := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, flag := range []string{"query-addr", "ingest-addr", "mqtt-tls-addr"} {
		if c, err := old.DialContext(ctx, "tcp", p.Address(flag)); err == nil {
			c.Close()
			t.Errorf("%s: got a connection with TLS 1.1, want an error", flag)
		}
	}
}
