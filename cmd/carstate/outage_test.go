package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/nodeprocess"
	"carstate/internal/stream"
	"carstate/internal/stream/streamtest"
	"carstate/internal/testkit"
)

// get reads a page of the admin listener, such as /readyz.
func get(url string) (code int, text string, err error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(body)), err
}

// wants is what until asks: that a page of the admin listener answers with a
// code.
func wants(url string, code int) func() error { return says(url, code, "") }

// says is wants of a page whose text has a pattern.
func says(url string, code int, pattern string) func() error {
	has := regexp.MustCompile(pattern)
	return func() error {
		got, text, err := get(url)
		if err == nil && (got != code || !has.MatchString(text)) {
			err = fmt.Errorf("%s answers %d: %.200s", url, got, text)
		}
		return err
	}
}

// The front door opens again after an outage of the cluster that outlasted the
// patience of a commit. Nobody needs to be let in for that: while the node calls
// itself not ready, no load balancer sends anybody.
func TestIngestAfterOutage(t *testing.T) {
	t.Parallel()
	cluster := streamtest.StartServer(t)
	f := defaults()
	f.DataDir, f.Nats, f.MqttAddr = t.TempDir(), cluster.URL(), ""
	f.QueryAddr, f.IngestAddr, f.AdminAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	log := new(testkit.Buffer)
	c := f.streamConfig()
	c.Partitions = 2
	c.Patience = stream.Patience{Try: time.Second, Store: 2 * time.Second, Stall: 2 * time.Second, Beat: 200 * time.Millisecond}
	s, err := startOn(t.Context(), f, c, slog.New(slog.NewTextHandler(log, nil)), func(address) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the service:\n%s", log)
		}
	}()
	ready, alive := s.url("--admin-addr")+"/readyz", s.url("--admin-addr")+"/healthz"
	if err := until(30*time.Second, wants(ready, http.StatusOK)); err != nil {
		t.Fatal(err)
	}
	key, err := admin.LoadKey(f.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	p := inProcess{s}
	operator := &admin.Client{URL: p.URL(nodeprocess.Admin), Key: key}
	// With so little patience a disk that is slow once refuses what it has stored.
	source, tries := "", 0
	if err := until(30*time.Second, func() error {
		tries++
		s, err := operator.AddSource(t.Context(), fmt.Sprint("gateway", tries), access.AllVehicles(), time.Time{})
		source = s.Key
		return err
	}); err != nil {
		t.Fatal(err)
	}
	taken := func(when any) {
		t.Helper()
		if err := until(30*time.Second, func() error {
			n, err := post(p, source, []string{"a", "b", "c"})
			if err == nil && n != 3 {
				t.Fatalf("%v: %d accepted", when, n)
			}
			return err
		}); err != nil {
			t.Fatalf("%v: %v", when, err)
		}
	}
	for round := range 2 {
		taken(round)
		cluster.Stop()
		if _, err := post(p, source, []string{"a", "b", "c"}); err == nil || !strings.Contains(err.Error(), "HTTP 503") {
			t.Fatalf("without a cluster: %v", err)
		}
		if err := wants(ready, http.StatusServiceUnavailable)(); err != nil {
			t.Fatal(err)
		}
		if err := wants(alive, http.StatusOK)(); err != nil {
			t.Fatalf("an outage is no reason to restart: %v", err)
		}
		cluster.Start()
		if err := until(30*time.Second, wants(ready, http.StatusOK)); err != nil {
			t.Fatal(err)
		}
	}
	taken("in the end")
	if strings.Contains(log.String(), key) {
		t.Error("the admin key is in the log")
	}
}

// inProcess is a node that is no process of its own.
type inProcess struct{ *service }

func (s inProcess) URL(listener string) string { return s.url("--" + listener) }

// halfHeads opens connections on which no whole request arrives.
func halfHeads(t *testing.T, addr string) {
	t.Helper()
	for _, text := range []string{"", "P", "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\n"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
}

// Clients that say half of what they want do not hold a node up that ends.
func TestEndsWithHalfOpenClients(t *testing.T) {
	p := start(t, t.TempDir())
	for _, name := range []string{"ingest-addr", "admin-addr", "mqtt-addr"} {
		halfHeads(t, p.Address(name))
	}
	if took := p.stop(t); took > 5*time.Second {
		t.Errorf("ending took %s", took)
	}
	if strings.Contains(p.log.String(), "connections were cut off") {
		t.Error("the end was held up until its time was over")
	}
}

// A node ends in time although its engine is out of reach, whatever waits for an
// answer: a sample that is being stored, a token's use, feeds, clients.
func TestEndsWithoutEngine(t *testing.T) {
	t.Parallel()
	cluster := streamtest.StartServer(t)
	p := start(t, t.TempDir(), "--nats", cluster.URL(), "--partitions", "2")
	token, key := p.issue(t), p.addSource(t, "gateway")
	if a, err := p.ask(drivingPath, token, "a"); err != nil || a.HTTP != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	cluster.Stop()
	stored := make(chan error, 1)
	go func() {
		_, err := post(p, key, []string{"a", "b", "c"})
		stored <- err
	}()
	// Once the first try of the commit has failed, all the others are stuck too.
	if err := until(30*time.Second, wants(p.URL(nodeprocess.Admin)+"/readyz", http.StatusServiceUnavailable)); err != nil {
		t.Fatal(err)
	}
	if err := wants(p.URL(nodeprocess.Admin)+"/healthz", http.StatusOK)(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"ingest-addr", "admin-addr", "query-addr", "mqtt-addr"} {
		halfHeads(t, p.Address(name))
	}
	if took := p.stop(t); took > 5*time.Second {
		t.Errorf("ending took %s", took)
	}
	if err := <-stored; err == nil {
		t.Error("a sample was acknowledged without an engine")
	}
}

// An admin key that cannot be used is refused before anything is changed.
func TestAdminKeyFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	p.stop(t)
	identity := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "carstate.json"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "carstate.json"))
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime().String() + string(text)
	}
	before, key := identity(), filepath.Join(dir, "admin.key")
	var closed struct{ Closed json.RawMessage }
	if err := json.Unmarshal([]byte(before[strings.Index(before, "{"):]), &closed); err != nil || closed.Closed == nil {
		t.Fatalf("a directory that was closed does not say so: %s", before)
	}
	refused := func(want string) {
		t.Helper()
		p, err := startProcess(dir, os.Environ())
		if err == nil {
			p.Kill()
			t.Fatal("it started")
		}
		if !strings.Contains(err.Error(), want) || strings.Count(strings.TrimSpace(err.Error()), "\n") > 0 {
			t.Errorf("the error is %q; want one line with %q", err, want)
		}
		if identity() != before {
			t.Error("the directory was changed")
		}
	}
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	refused("chmod 600")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, bytes.ToUpper(text), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("holds no admin key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(key, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("is not a file")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	start(t, dir).stop(t) // with a new key
}

// An engine that is slow to open does not keep a node from ending.
func TestEndsWhileOpening(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stalled, began := stallOf(t.TempDir()), time.Now()
	urls := strings.Repeat("nats://"+l.Addr().String()+",", 3)
	e, err := openEngine(ctx, stream.Config{URLs: strings.TrimSuffix(urls, ",")})
	if err == nil {
		e.Close()
		t.Fatal("there is no engine")
	}
	if took := time.Since(began); took-stalled() > 5*time.Second {
		t.Errorf("that took %s", took)
	}
	// NATS would try each of the three for longer.
	if !strings.HasPrefix(err.Error(), "ended while the engine was being opened") {
		t.Error(err)
	}
}
