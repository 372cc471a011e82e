package main_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// The test takes the place of systemd: ready, repeatedly alive, stopping.
func TestSupervisor(t *testing.T) {
	startsPrograms(t)
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	testkit.NoError(t, err)
	defer l.Close()
	said := new(testkit.Buffer)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := l.Read(b)
			if err != nil {
				return
			}
			said.Write(append(b[:n:n], '\n'))
		}
	}()
	p, err := startProcess(t.TempDir(), append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000"))
	testkit.NoError(t, err)
	t.Cleanup(p.Kill)
	hears := func(text string, times int) {
		t.Helper()
		if err := until(time.Minute, func() error {
			if strings.Count(said.String(), text) < times {
				return errors.New("not yet")
			}
			return nil
		}); err != nil {
			t.Fatalf("the supervisor did not hear %q %d times: %s", text, times, said)
		}
	}
	hears("READY=1", 1)
	hears("WATCHDOG=1", 3)
	p.stop(t)
	hears("STOPPING=1", 1)
	if n := strings.Count(said.String(), "READY=1"); n != 1 {
		t.Errorf("ready %d times:\n%s", n, said)
	}
}

// A process that got no processor in time has not failed.
func TestEndOnAStarvedMachine(t *testing.T) {
	startsPrograms(t)
	var p *process
	for range 5 {
		p = start(t, t.TempDir())
		testkit.NoError(t, p.Signal(syscall.SIGTERM))
		for until := time.Now().Add(testkit.Patience); p.log.Count(`"msg":"ending"`) == 0 && time.Now().Before(until); {
		}
		_ = p.Signal(syscall.SIGSTOP) // it may have ended
		<-time.After(5 * time.Second) // more than a node takes
		if !p.HasEnded() {
			break
		}
	}
	testkit.NoError(t, p.Signal(syscall.SIGCONT))
	testkit.Await(t, "it has ended", p.HasEnded)
	if p.ExitCode() != 0 || p.log.Count(`"ended","took":`) != 1 {
		t.Errorf("exit code %d, want 0, and how long it took:\n%s", p.ExitCode(), p.log)
	}
}

// A restart follows every exit except that of a wrong configuration. Code 2 is of SIGABRT, which
// the watchdog sends, SIGQUIT and a panic.
func TestExitCodesAndTheUnit(t *testing.T) {
	startsPrograms(t)
	unit := readFile(t, deployDir+"/systemd/carstate.service")
	if !strings.Contains(unit, "\nRestart=on-failure\n") {
		t.Fatal("the unit does not say Restart=on-failure")
	}
	prevented := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindStringSubmatch(unit)
	if prevented == nil {
		t.Fatal("the unit does not say RestartPreventExitStatus=")
	}
	holds := func(what string, err error, want int, again bool) {
		t.Helper()
		e, ok := errors.AsType[*nodeprocess.EndedError](err)
		if !ok || e.Code != want {
			t.Errorf("%s: %v, want exit %d", what, err, want)
			return
		}
		if got := !slices.Contains(strings.Fields(prevented[1]), strconv.Itoa(e.Code)); got != again {
			t.Errorf("%s: exit %d, and systemd starts it again: %v", what, e.Code, got)
		}
	}
	foreign, damaged := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{filepath.Join(foreign, "notes.txt"): "Dear diary\n",
		filepath.Join(damaged, "carstate.json"): "{}"} {
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	fails := func(dir string, flags ...string) error {
		t.Helper()
		p, err := startProcess(dir, os.Environ(), flags...)
		if err == nil {
			p.Kill()
		}
		return err
	}
	holds("a flag that there is not", fails(t.TempDir(), "--no-such-flag"), exitConfig, false)
	holds("a value that makes no sense", fails(t.TempDir(), "--max-age", "0s"), exitConfig, false)
	holds("the store of one machine under --nats", fails(damaged, "--nats", "nats://127.0.0.1:1"), exitConfig, false)
	holds("the directory of another program", fails(foreign), exitConfig, false)
	holds("a damaged store", fails(damaged), exitError, true)
	for _, s := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGABRT} {
		p := start(t, t.TempDir())
		testkit.NoError(t, p.Signal(s))
		<-p.Ended()
		// The signal may interrupt the race detector.
		if code := p.ExitCode(); code == 0 || slices.Contains(strings.Fields(prevented[1]), strconv.Itoa(code)) {
			t.Errorf("%s: exit %d, and systemd does not start it again", s, code)
		}
	}
}
