package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func wants(url string, code int) func() error { return testkit.Says(url, code, "") }

func halfHeads(t *testing.T, addr string) {
	t.Helper()
	for _, text := range []string{"", "P", "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\n"} {
		c, err := net.Dial("tcp", addr)
		testkit.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = io.WriteString(c, text)
		testkit.NoError(t, err)
	}
}

func TestEndsWithHalfOpenClients(t *testing.T) {
	p := start(t, t.TempDir())
	for _, name := range []string{"ingest-addr", "admin-addr", "mqtt-addr"} {
		halfHeads(t, p.Address(name))
	}
	if took := p.stop(t); took > 5*time.Second {
		t.Errorf("the end: got it after %s, want 5s at most", took)
	}
	if strings.Contains(p.log.String(), "connections were cut off") {
		t.Error("the end: got connections that were cut off, want it before that")
	}
}

// The node exits in time although a sample, the use of a token, feeds and clients wait for the
// engine.
func TestEndsWithoutEngine(t *testing.T) {
	t.Parallel()
	servers := clustertest.StartServer(t)
	p := start(t, t.TempDir(), "--nats", servers.URL(), "--partitions", "2")
	token, key := p.issue(t), p.addSource(t, "gateway")
	if a, err := p.ask(drivingPath, token, "a"); err != nil || a.HTTP != http.StatusOK {
		t.Fatalf("before the outage: got %+v, %v, want HTTP 200", a, err)
	}
	servers.Stop()
	stored := make(chan error, 1)
	go func() {
		_, err := post(p, key, []string{"a", "b", "c"})
		stored <- err
	}()
	// Once the first attempt has failed, all other tasks wait.
	testkit.NoError(t, until(30*time.Second, wants(p.URL(nodeprocess.Admin)+"/readyz", http.StatusServiceUnavailable)))
	testkit.NoError(t, wants(p.URL(nodeprocess.Admin)+"/healthz", http.StatusOK)())
	for _, name := range []string{"ingest-addr", "admin-addr", "query-addr", "mqtt-addr"} {
		halfHeads(t, p.Address(name))
	}
	if took := p.stop(t); took > 5*time.Second {
		t.Errorf("the end: got it after %s, want 5s at most", took)
	}
	if err := <-stored; err == nil {
		t.Error("a sample without an engine: got no error, want one")
	}
}

// A bad key is refused before anything in the data directory is changed.
func TestAdminKeyFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	p.stop(t)
	identity := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "carstate.json"))
		testkit.NoError(t, err)
		info, err := os.Stat(filepath.Join(dir, "carstate.json"))
		testkit.NoError(t, err)
		return info.ModTime().String() + string(text)
	}
	before, key := identity(), filepath.Join(dir, "admin.key")
	var closed struct{ Ends json.RawMessage }
	if err := json.Unmarshal([]byte(before[strings.Index(before, "{"):]), &closed); err != nil || closed.Ends == nil {
		t.Fatalf("a directory that was closed: got %s, %v, want its ends", before, err)
	}
	refused := func(want string) {
		t.Helper()
		p, err := startProcess(dir, os.Environ())
		if err == nil {
			p.Kill()
			t.Fatalf("the start: got no error, want %q", want)
		}
		if e, ok := errors.AsType[*nodeprocess.EndedError](err); !ok || e.Code != exitConfig {
			t.Errorf("the start: got %v, want exit code %d, after which systemd starts nothing", err, exitConfig)
		}
		if !strings.Contains(err.Error(), want) || strings.Count(strings.TrimSpace(err.Error()), "\n") > 0 {
			t.Errorf("the start: got %q, want one line with %q", err, want)
		}
		if identity() != before {
			t.Errorf("the directory: got %s, want %s", identity(), before)
		}
	}
	testkit.NoError(t, os.Chmod(key, 0o640))
	refused("chmod 600")
	text, err := os.ReadFile(key)
	testkit.NoError(t, err)
	testkit.NoError(t, os.Chmod(key, 0o600))
	testkit.NoError(t, os.WriteFile(key, bytes.ToUpper(text), 0o600))
	refused("holds no admin key")
	testkit.NoError(t, os.Remove(key))
	testkit.NoError(t, os.Mkdir(key, 0o700))
	refused("is not a file")
	testkit.NoError(t, os.Remove(key))
	start(t, dir).stop(t) // with a new key
}
