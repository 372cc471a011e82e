package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carstate/internal/testkit"
)

// TestSupervisor plays systemd: it wants to hear that the service is ready, then
// that it is alive, again and again, and that it ends.
func TestSupervisor(t *testing.T) {
	startsPrograms(t)
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
