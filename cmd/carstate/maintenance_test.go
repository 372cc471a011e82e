package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

// says returns a function that returns an error unless a path of the admin listener responds with
// the given status and text.
func says(p *process, path string, status int, text string) func() error {
	return func() error {
		got, body, err := p.Get(context.Background(), nodeprocess.Admin, path)
		if err == nil && (got != status || !strings.Contains(string(body), text)) {
			err = fmt.Errorf("%s: HTTP %d: %s", path, got, body)
		}
		return err
	}
}

// TestDrainServesOnWhileItIsNotReady checks a node that received the signal to end. It reports not
// ready and continues to serve, and it exits at once after a second signal.
func TestDrainServesOnWhileItIsNotReady(t *testing.T) {
	p := start(t, t.TempDir(), "--drain", "1h")
	token, key := p.issue(t), p.addSource(t, "gateway")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/readyz", "/readyz/query", "/readyz/ingest"} {
		if err := until(testkit.Patience, says(p, path, http.StatusServiceUnavailable, "the node is ending")); err != nil {
			t.Fatal(err)
		}
	}
	if err := says(p, "/healthz", http.StatusOK, "alive")(); err != nil {
		t.Error(err)
	}
	if _, err := post(p, key, []string{"drained"}); err != nil {
		t.Errorf("telemetry: %v", err)
	}
	if err := until(testkit.Patience, func() error { return p.folded(token, "drained", p.began) }); err != nil {
		t.Errorf("a query: %v", err)
	}
	p.stop(t)
}

// TestDrainEndsByItself checks that a draining node exits after the time of --drain without another
// signal.
func TestDrainEndsByItself(t *testing.T) {
	p := start(t, t.TempDir(), "--drain", "200ms")
	asked := time.Now()
	p.stop(t)
	if took := time.Since(asked); took < 200*time.Millisecond {
		t.Errorf("it ended after %s", took)
	}
}

// TestReloadChangesWhatCanChange checks that SIGHUP makes a node reload its settings. The node must
// log which settings it changed and which need a restart. If any setting is wrong, it must change
// nothing.
func TestReloadChangesWhatCanChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "carstate.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("retention = 1h\n")
	p := start(t, t.TempDir(), "--config", file)
	reload := func(text, says string) {
		t.Helper()
		before := p.log.Count(says)
		write(text)
		if err := p.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, says, func() bool { return p.HasEnded() || p.log.Count(says) > before })
	}
	reload("retention = 2h\nlog-level = debug\nmax-vehicles = 7\n",
		`"changed":"log-level,max-vehicles","needs_restart":"retention"`)
	if level := p.carstate(t, "log-level"); level != "debug\n" {
		t.Errorf("the level is %s", level)
	}
	if n, err := sumOf(p, "carstate_vehicles_limit"); err != nil || n != 7 {
		t.Errorf("%g vehicles may be known, %v", n, err)
	}
	reload("log-level = loud\n", "the settings are invalid and nothing was changed")
	if level := p.carstate(t, "log-level"); level != "debug\n" {
		t.Errorf("after wrong settings the level is %s", level)
	}
	reload("retention = 1h\nlog-level = debug\nmax-vehicles = 7\n", `"changed":"-","needs_restart":"-"`)
	if err := says(p, "/readyz", http.StatusOK, "ready")(); err != nil {
		t.Error(err)
	}
	if a, err := p.ask(drivingPath, p.issue(t), "NobodyKnowsMe"); err != nil || a.HTTP != http.StatusOK {
		t.Errorf("after SIGHUP: got %+v, %v, want HTTP 200", a, err)
	}
	p.stop(t)
	if p.log.Count(`"msg":"ending","reason":"terminated signal received"`) != 1 {
		t.Errorf("it ended before it was asked to:\n%s", p.log)
	}
}

// TestSIGHUPWhileItStarts checks that SIGHUP does not end a node that is still starting.
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
				_ = (<-started).Signal(syscall.SIGHUP) // the log below shows whether the signal arrived
			}
		},
	})
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	t.Cleanup(n.Kill)
	testkit.Await(t, "the signal is taken", func() bool { return said.Count("reloaded the settings") == 1 })
}

// TestReadOnlyRefusesTelemetryAlone checks that queries and operators' changes continue while a
// node is read-only.
func TestReadOnlyRefusesTelemetryAlone(t *testing.T) {
	p := start(t, t.TempDir())
	token, key := p.issue(t), p.addSource(t, "gateway")
	if _, err := post(p, key, []string{"before"}); err != nil {
		t.Fatal(err)
	}
	if state := p.carstate(t, "read-only", "on"); state != "on\n" {
		t.Errorf("it is %s", state)
	}
	if _, err := post(p, key, []string{"during"}); err == nil || !strings.Contains(err.Error(), "HTTP 503") ||
		!strings.Contains(err.Error(), "read-only for maintenance") {
		t.Errorf("telemetry: %v", err)
	}
	if err := until(testkit.Patience, func() error { return p.folded(token, "before", p.began) }); err != nil {
		t.Errorf("a query: %v", err)
	}
	for path, status := range map[string]int{"/readyz/ingest": http.StatusServiceUnavailable,
		"/readyz/query": http.StatusOK} {
		if err := says(p, path, status, "")(); err != nil {
			t.Error(err)
		}
	}
	p.issue(t)
	if state := p.carstate(t, "read-only", "off"); state != "off\n" {
		t.Errorf("it is %s", state)
	}
	if _, err := post(p, key, []string{"after"}); err != nil {
		t.Errorf("telemetry: %v", err)
	}
}
