package main_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func says(p *process, path string, status int, text string) func() error {
	return func() error {
		got, body, err := p.Get(context.Background(), nodeprocess.Admin, path)
		if err == nil && (got != status || !strings.Contains(string(body), text)) {
			err = fmt.Errorf("%s: HTTP %d: %s", path, got, body)
		}
		return err
	}
}

func TestDrainServesOnWhileItIsNotReady(t *testing.T) {
	p := start(t, t.TempDir(), "--drain", "1h")
	token, key := p.issue(t), p.addSource(t, "gateway")
	testkit.NoError(t, p.Signal(syscall.SIGTERM))
	for _, path := range []string{"/readyz", "/readyz/query", "/readyz/ingest"} {
		testkit.NoError(t, until(testkit.Patience, says(p, path, http.StatusServiceUnavailable, "the node is ending")))
	}
	testkit.NoError(t, says(p, "/healthz", http.StatusOK, "alive")())
	if _, err := post(p, key, []string{"drained"}); err != nil {
		t.Errorf("telemetry during the drain: got %v, want no error", err)
	}
	if err := until(testkit.Patience, func() error { return p.folded(token, "drained", p.began) }); err != nil {
		t.Errorf("a query during the drain: got %v, want an answer", err)
	}
	p.stop(t)
}

func TestDrainEndsByItself(t *testing.T) {
	p := start(t, t.TempDir(), "--drain", "200ms")
	asked := time.Now()
	p.stop(t)
	if took := time.Since(asked); took < 200*time.Millisecond {
		t.Errorf("the end: got it after %s, want 200ms or more", took)
	}
}

func TestSIGHUPWhileItStarts(t *testing.T) {
	startsPrograms(t)
	started := make(chan *os.Process, 1)
	said := new(testkit.Buffer)
	n, err := nodeprocess.Start(t.Context(), nodeprocess.Options{
		Binary: binary, Dir: t.TempDir(), Env: append(os.Environ(), "GORACE="+endAtOnce),
		Begin: func(cmd *exec.Cmd) error {
			err := cmd.Start()
			started <- cmd.Process
			return err
		},
		Heard: func(line []byte) {
			fmt.Fprintf(said, "%s\n", line)
			if strings.Contains(string(line), "new vehicles are refused beyond a limit") {
				_ = (<-started).Signal(syscall.SIGHUP) // the log shows whether it arrived
			}
		},
	})
	if err != nil {
		t.Fatalf("the start: got %v, want a node that is ready: %s", err, said)
	}
	t.Cleanup(n.Kill)
	testkit.Await(t, "the signal is taken", func() bool { return said.Count("reloaded the access log") == 1 })
}

func TestReadOnlyRefusesTelemetryAlone(t *testing.T) {
	p := start(t, t.TempDir())
	token, key := p.issue(t), p.addSource(t, "gateway")
	_, err := post(p, key, []string{"before"})
	testkit.NoError(t, err)
	if state := p.carstate(t, "read-only", "on"); state != "on\n" {
		t.Errorf("read-only on: got %q, want on", state)
	}
	if _, err := post(p, key, []string{"during"}); err == nil || !strings.Contains(err.Error(), "HTTP 503") ||
		!strings.Contains(err.Error(), "read-only for maintenance") {
		t.Errorf("telemetry during read-only: got %v, want HTTP 503 that says so", err)
	}
	if err := until(testkit.Patience, func() error { return p.folded(token, "before", p.began) }); err != nil {
		t.Errorf("a query during read-only: got %v, want an answer", err)
	}
	for path, status := range map[string]int{"/readyz/ingest": http.StatusServiceUnavailable,
		"/readyz/query": http.StatusOK} {
		testkit.NoError(t, says(p, path, status, "")())
	}
	p.issue(t)
	if state := p.carstate(t, "read-only", "off"); state != "off\n" {
		t.Errorf("read-only off: got %q, want off", state)
	}
	if _, err := post(p, key, []string{"after"}); err != nil {
		t.Errorf("telemetry after read-only: got %v, want no error", err)
	}
}

// The service listens without TLS, as in deploy/docker/compose.yaml, and the commands use the same
// setting.
func TestCommandsInAContainer(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "--behind-proxy", "--admin-addr", "0.0.0.0:0")
	_, port, err := net.SplitHostPort(p.Address(nodeprocess.Admin))
	testkit.NoError(t, err)
	t.Setenv("CARSTATE_ADMIN_ADDR", "0.0.0.0:"+port)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"token", "issue", "--developer", "Ada Lovelace", "--vehicles", "all", "--data-dir", dir}, "cst_"},
		{[]string{"health"}, "ready"},
		{[]string{"health", "--live"}, ""},
	} {
		var stdout, stderr testkit.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), c.want) {
			t.Errorf("%q: got exit code %d, %s%s, want %d, %q", c.args, code, &stdout, &stderr, exitOK, c.want)
		}
	}
	p.stop(t)
	var stdout, stderr testkit.Buffer
	if code := run(t.Context(), []string{"health"}, &stdout, &stderr); code != exitError ||
		!strings.Contains(stderr.String(), "no carstate answers at") {
		t.Errorf("the health of a service that ended: got %d, %s%s, want %d", code, &stdout, &stderr, exitError)
	}
}
